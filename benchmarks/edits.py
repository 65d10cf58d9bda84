"""Edits of photographs that leave them the same picture to a person: what a finder of duplicates is measured on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

Edit = Callable[[Image.Image, np.random.Generator], Image.Image]
QUALITY = 90  # of the JPEG files that edits are saved as


def _half(image: Image.Image, _: np.random.Generator) -> Image.Image:
    return image.resize((max(1, image.width // 2), max(1, image.height // 2)), Image.Resampling.LANCZOS)


def _crop(share: float) -> Edit:
    """Return the edit that takes this share of the width and of the height away, at a random place."""

    def crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        width, height = round(image.width * (1 - share)), round(image.height * (1 - share))
        left, top = (int(rng.integers(0, slack + 1)) for slack in (image.width - width, image.height - height))
        return image.crop((left, top, left + width, top + height))

    return crop


def _brightness(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(float(rng.choice([0.6, 1.4])))


def _contrast(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(float(rng.choice([0.6, 1.4])))


def _text(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Write a line across the image, a sixth of its height, white with a black edge."""
    changed = image.copy()
    size = image.height / 6
    place = image.width * 0.04, float(rng.uniform(0.05, 0.75)) * image.height
    ImageDraw.Draw(changed).text(
        place, "See you there!", fill="white", font=ImageFont.load_default(size=size), stroke_width=1,
        stroke_fill="black",
    )  # fmt: skip
    return changed


def _blur(image: Image.Image, _: np.random.Generator) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(max(image.size) / 100))


def _turned(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Turn by 5° to either side; the corners become black."""
    return image.rotate(float(rng.choice([-5, 5])), Image.Resampling.BICUBIC)


EDITS: dict[str, Edit] = {
    "JPEG 30": lambda image, _: image,
    "half size": _half,
    "crop 5%": _crop(0.05),
    "crop 10%": _crop(0.1),
    "crop 20%": _crop(0.2),
    "mirror": lambda image, _: ImageOps.mirror(image),
    "brightness": _brightness,
    "contrast": _contrast,
    "grey": lambda image, _: ImageOps.grayscale(image),
    "text": _text,
    "blur": _blur,
    "rotation 5°": _turned,
    "rotation 90°": lambda image, _: image.transpose(Image.Transpose.ROTATE_90),
}


def write_edits(source: Path, folder: Path, number: int) -> None:
    """Write a photograph and its edits into a folder, as 00.jpg and 01.jpg and so on in the order of `EDITS`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00.jpg").write_bytes(source.read_bytes())
    with Image.open(source) as opened:
        image = opened.convert("RGB")
    for place, (name, edit) in enumerate(EDITS.items(), start=1):
        changed = edit(image, np.random.default_rng((number, place)))
        changed.save(folder / f"{place:02}.jpg", quality=30 if name == "JPEG 30" else QUALITY)
