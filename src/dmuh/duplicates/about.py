"""What is known of an image file: its size in pixels and bytes, its date, and, where that decides, its sharpness."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from dmuh.errors import ImageError
from dmuh.files import open_regular
from dmuh.images import FORMATS, upright

_TURNED = range(5, 9)  # orientations that exchange width and height
_BYTES_STEP = 1.1  # sizes in bytes that differ by less tell nothing
_SHARP_SIDE = 512  # pixels that sharpness is measured at


@dataclass(frozen=True)
class About:
    """An image file: pixels across and down, bytes, and when it was changed, in nanoseconds."""

    width: int
    height: int
    n_bytes: int
    stamp: int

    @property
    def n_pixels(self) -> int:
        """How many pixels it has."""
        return self.width * self.height

    @property
    def size_class(self) -> tuple[int, int]:
        """Its pixels, and its bytes as far as they tell something."""
        return self.n_pixels, round(math.log(max(self.n_bytes, 1)) / math.log(_BYTES_STEP))


def about_file(path: Path, n_bytes: int, stamp: int) -> About:
    """Return what is known of an image file without decoding it; its sides are 0 if it cannot be read any more."""
    try:
        with os.fdopen(open_regular(path), "rb") as file, Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if image.getexif().get(ExifTags.Base.Orientation) in _TURNED:
                width, height = height, width
    except Exception:  # decoders raise nearly anything on broken files
        width = height = 0
    return About(width, height, n_bytes, stamp)


def sharpness(path: Path) -> float:
    """Return how much detail an image has: the mean change from pixel to pixel beside that of the whole.

    Large images are measured at about 512 pixels. More contrast alone is no more detail.
    """
    try:
        image = upright(path, _SHARP_SIDE).convert("L")
    except ImageError:
        return 0.0
    image.thumbnail((2 * _SHARP_SIDE, 2 * _SHARP_SIDE))
    pixels = np.asarray(image, np.float32)
    changes = [float(np.abs(np.diff(pixels, axis=axis)).mean()) for axis in (0, 1) if pixels.shape[axis] > 1]
    return sum(changes) / max(float(pixels.std()), 1.0)


def same_pixels(one: Path, other: Path) -> bool:
    """Return whether two images of one size have the same pixels, the right way up."""
    try:
        first, second = (np.asarray(upright(path, 1 << 20)) for path in (one, other))
    except ImageError:
        return False
    return bool(np.array_equal(first, second))
