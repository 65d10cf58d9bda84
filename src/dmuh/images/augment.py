"""Which part of an image the network sees and what is changed about it: always the same, or at random to train with."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from PIL import Image, ImageStat

Augment = Literal["none", "flip", "crop", "crop+flip", "resized-crop+flip", "resized-crop+flip+colour"]
AUGMENTS: tuple[Augment, ...] = get_args(Augment)
Box = tuple[float, float, float, float]  # left, top, right, bottom

_AREA = 0.35, 1.0  # share of the image in a resized crop; a smaller one often misses what the image is labelled for
_RATIO = 4 / 3  # of its sides, at most, beside those of the whole image
_CHANGE = 0.4  # of brightness, contrast and saturation, at most
_HUE = 0.05  # of the circle of colours that they turn by, at most

# Luma and the two axes of colour (YIQ): saturation stretches the plane of the colours, hue turns it, grey stays grey.
_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_RGB = np.linalg.inv(_YIQ)


@dataclass(frozen=True)
class Preprocess:
    """The geometry a network wants: stretched to `resize` × `resize`, of which a `size` × `size` crop is taken."""

    size: int
    resize: int


@dataclass(frozen=True)
class Colours:
    """Factors of brightness, contrast and saturation, and the part of the circle that hues turn by."""

    brightness: float
    contrast: float
    saturation: float
    hue: float


@dataclass(frozen=True)
class Changes:
    """What is done to one image.

    box       left, top, right and bottom of what is taken, in pixels of the image stretched to `resize` × `resize`
    mirrored  whether left and right change places
    colours   how they change, if they do
    """

    box: Box
    mirrored: bool = False
    colours: Colours | None = None

    def wanted(self, preprocess: Preprocess) -> int:
        """Return the side that the whole image needs for as many pixels in the box as are made of it."""
        left, top, right, bottom = self.box
        return math.ceil(preprocess.size * preprocess.resize / min(right - left, bottom - top))


def draw_changes(preprocess: Preprocess, augment: Augment, rng: np.random.Generator | None) -> Changes:
    """Return what `augment` does to the image that `rng` belongs to; without one, the crop in the centre."""
    slack = preprocess.resize - preprocess.size
    if rng is None:
        return Changes(_square(slack / 2, slack / 2, preprocess.size))
    kinds = augment.split("+")
    if "resized-crop" in kinds:
        box = _resized_crop(preprocess.resize, rng)
    elif "crop" in kinds:
        left, top = rng.integers(0, slack + 1, size=2).tolist()
        box = _square(left, top, preprocess.size)
    else:
        box = _square(slack / 2, slack / 2, preprocess.size)
    # In this order, so that a seed gives the same crop with and without the flip, and the same two without the colours.
    mirrored = "flip" in kinds and rng.random() < 0.5
    return Changes(box, mirrored, _colours(rng) if "colour" in kinds else None)


def recoloured(image: Image.Image, colours: Colours) -> Image.Image:
    """Return an RGB image in other colours.

    Brightness scales all, contrast the distance from the mean luma, saturation the distance from the pixel's own luma;
    hue turns the colours around it. Their order does not matter as long as black and white cut nothing off between
    them, so all are done by one matrix, which is several times as fast.
    """
    turn = 2 * math.pi * colours.hue
    cos, sin = colours.saturation * math.cos(turn), colours.saturation * math.sin(turn)
    gain = colours.brightness * colours.contrast
    matrix = gain * _RGB @ np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]]) @ _YIQ
    luma = float(_YIQ[0] @ ImageStat.Stat(image).mean)
    offset = colours.brightness * (1 - colours.contrast) * luma
    return image.convert("RGB", tuple(np.column_stack([matrix, np.full(3, offset)]).ravel().tolist()))


def _square(left: float, top: float, side: float) -> Box:
    return left, top, left + side, top + side


def _resized_crop(side: float, rng: np.random.Generator) -> Box:
    """Return a box in the stretched image: uniform in its area, in the logarithm of its ratio and in its place.

    The ratio is drawn among those that fit into the image with that area, so that no box has to be drawn again.
    """
    area, ratio, across, down = rng.random(4).tolist()
    area = _AREA[0] + (_AREA[1] - _AREA[0]) * area
    ratio = math.exp((2 * ratio - 1) * min(math.log(_RATIO), -math.log(area)))
    width, height = (min(side, side * math.sqrt(part)) for part in (area * ratio, area / ratio))
    left, top = across * (side - width), down * (side - height)
    return left, top, left + width, top + height


def _colours(rng: np.random.Generator) -> Colours:
    brightness, contrast, saturation = rng.uniform(1 - _CHANGE, 1 + _CHANGE, 3).tolist()
    return Colours(brightness, contrast, saturation, rng.uniform(-_HUE, _HUE))
