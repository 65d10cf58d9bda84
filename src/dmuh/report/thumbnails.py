"""Small pictures of images: as data for a page, and as a contact sheet."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dmuh.errors import ImageError
from dmuh.images import ImageLike, Preprocess, read_pixels

_RIGHT, _WRONG, _INK, _PAPER, _CARD = (0, 114, 178), (213, 94, 0), (36, 41, 47), (255, 255, 255), (238, 241, 244)
_GAP, _CAPTION = 8, 34


@dataclass(frozen=True)
class Words:
    """A text that stands in the place of a picture."""

    text: str


@dataclass(frozen=True)
class Tile:
    """One picture of a contact sheet: the image, two short lines under it, and whether it is a right answer."""

    image: ImageLike | Words
    first: str
    second: str = ""
    right: bool | None = None


def thumbnail(image: ImageLike, side: int = 64) -> Image.Image:
    """Return a square picture of an image; an unreadable one becomes a grey square."""
    try:
        return Image.fromarray(read_pixels(image, Preprocess(side, side)))
    except ImageError:
        return Image.fromarray(np.full((side, side, 3), 128, np.uint8))


def data_uri(image: ImageLike, side: int = 64) -> str:
    """Return a thumbnail as a data: address, to stand inside a page."""
    buffer = io.BytesIO()
    thumbnail(image, side).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def contact_sheet(rows: Sequence[Sequence[Tile]], side: int = 96) -> Image.Image:
    """Draw rows of tiles, a query first in each; right answers have a blue frame, wrong ones an orange one."""
    columns = max((len(row) for row in rows), default=0)
    step_x, step_y = side + _GAP, side + _GAP + _CAPTION
    sheet = Image.new("RGB", (columns * step_x + 2 * _GAP, len(rows) * step_y + _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=11)
    for r, row in enumerate(rows):
        for c, tile in enumerate(row):
            x, y = _GAP + c * step_x + (_GAP if c else 0), _GAP + r * step_y
            picture = written(tile.image.text, side) if isinstance(tile.image, Words) else thumbnail(tile.image, side)
            sheet.paste(picture, (x, y))
            if tile.right is not None:
                frame = (x - 2, y - 2, x + side + 1, y + side + 1)
                pen.rectangle(frame, outline=_RIGHT if tile.right else _WRONG, width=3)
            for line, text in enumerate((tile.first, tile.second)):
                pen.text((x, y + side + 3 + 14 * line), _shorten(text, font, side), fill=_INK, font=font)
    return sheet


def written(text: str, side: int) -> Image.Image:
    """Return a square with a text, in as many lines as it has room for."""
    square = Image.new("RGB", (side, side), _CARD)
    font = ImageFont.load_default(size=12)
    room, height = side - 2 * _GAP, 15
    most = (side - 2 * _GAP) // height
    lines = _lines(text.split(), font, room)
    if len(lines) > most:
        lines = [*lines[: most - 1], _shorten(" ".join(lines[most - 1 :]), font, room)]
    pen = ImageDraw.Draw(square)
    for n, line in enumerate(lines):
        pen.text((_GAP, _GAP + n * height), _shorten(line, font, room), fill=_INK, font=font)
    return square


def _lines(words: list[str], font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    """Return words as lines that are no wider than this, unless one word is."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _shorten(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
