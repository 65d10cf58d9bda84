"""What may be uploaded: files that are an image, whole, of a type that every browser shows, and nothing besides.

The end of the image is found by its own format, so that a file that goes on behind it, a picture and an archive or a
page at once, is refused. What is drawn in it is looked at later, when it is decoded.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image

from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.errors import RequestError

_JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)  # that is not part of the picture's data
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}


class Kind(NamedTuple):
    """An image type: its name in Pillow, the suffix of its files, and where in a file the image ends, if it does."""

    name: str
    suffix: str
    end: Callable[[bytes], int | None]


@dataclass(frozen=True)
class Upload:
    """An image that came, checked and encoded: its file, the type of that, and its code."""

    content: bytes
    kind: Kind
    code: Codes


def encode_uploads(hasher: Hasher, contents: Sequence[bytes], most_pixels: int) -> list[Upload | Exception]:
    """Check and encode files that came; each gives its upload, or the error that says what is wrong with it."""
    results: list[Upload | Exception] = []
    kinds: dict[int, Kind] = {}
    for position, content in enumerate(contents):
        try:
            kinds[position] = check_upload(content, most_pixels)
            results.append(RequestError(422, f"this {kinds[position].name} image is broken"))  # unless it is decoded
        except RequestError as error:
            results.append(error)
    checked = list(kinds)
    codes = hasher.encode([contents[position] for position in checked], on_bad_image="skip", workers=0)
    for row, kept in enumerate(codes.ids.tolist()):
        position = checked[kept]
        results[position] = Upload(contents[position], kinds[position], codes[row : row + 1])
    return results


def check_upload(content: bytes, most_pixels: int) -> Kind:
    """Return the type of an uploaded image; whatever is not exactly one is refused with a sentence."""
    if not content:
        raise RequestError(400, "the upload is empty: send the image itself as the body of the request")
    kind = next((kind for start, kind in _KINDS.items() if start.match(content)), None)
    if kind is None:
        raise RequestError(415, "this is not a JPEG, PNG, WebP or GIF image")
    end = kind.end(content)
    if end is None or end > len(content):
        raise RequestError(422, f"this {kind.name} image is cut short or broken")
    rest = content[end:]
    if rest.strip(b"\0") and not (kind.name == "JPEG" and _from_a_phone(rest)):
        raise RequestError(422, f"{len(rest):,} bytes follow the end of this {kind.name} image: leave them out")
    try:
        with Image.open(io.BytesIO(content), formats=[kind.name]) as image:  # reads the head alone
            pixels = image.width * image.height
    except Image.DecompressionBombError:
        pixels = most_pixels + 1
    except Exception as error:  # decoders raise nearly anything on broken files
        raise RequestError(422, f"this {kind.name} image is broken") from error
    if pixels > most_pixels:
        raise RequestError(413, f"an image may have {most_pixels:,} pixels at most")
    return kind


def _from_a_phone(rest: bytes) -> bool:
    """Return whether what follows a photograph is what phones put there: another one, or a short film."""
    return rest.startswith(b"\xff\xd8\xff") or rest[4:8] == b"ftyp"


def _jpeg_end(content: bytes) -> int | None:
    at = 2
    while (found := _JPEG_MARKER.search(content, at)) is not None:
        marker, at = content[found.start() + 1], found.end()
        if marker == 0xD9:
            return at
        if marker not in _NO_LENGTH:
            at += max(2, int.from_bytes(content[at : at + 2], "big"))
    return None


def _png_end(content: bytes) -> int | None:
    at = 8
    while at + 12 <= len(content):
        length, name = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        at += 12 + length
        if name == b"IEND":
            return at
    return None


def _gif_end(content: bytes) -> int | None:
    if len(content) < 13:
        return None
    at = 13 + _gif_colours(content[10])
    while at < len(content):
        block = content[at]
        if block == 0x3B:
            return at + 1
        if block == 0x21:  # an extension
            at += 2
        elif block == 0x2C and at + 10 <= len(content):  # a picture
            at += 11 + _gif_colours(content[at + 9])
        else:
            return None
        while at < len(content) and content[at]:  # its parts, each with its length before it
            at += 1 + content[at]
        at += 1
    return None


def _gif_colours(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp_end(content: bytes) -> int | None:
    return 8 + int.from_bytes(content[4:8], "little")


_KINDS = {
    re.compile(rb"\xff\xd8\xff"): Kind("JPEG", ".jpg", _jpeg_end),
    re.compile(rb"\x89PNG\r\n\x1a\n"): Kind("PNG", ".png", _png_end),
    re.compile(rb"GIF8[79]a"): Kind("GIF", ".gif", _gif_end),
    re.compile(rb"RIFF....WEBP", re.DOTALL): Kind("WEBP", ".webp", _webp_end),
}
