"""The pixels of one image."""

import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from dmuh.errors import DtypeError, ImageError, InputError
from dmuh.files import NotRegularError, open_regular
from dmuh.images.augment import Augment, Preprocess, draw_changes, recoloured
from dmuh.images.formats import open_image

ImageLike = str | Path | bytes | Image.Image | NDArray[np.uint8]
Images = Sequence[ImageLike] | NDArray[np.uint8]  # an array holds one image per row
Pixels = NDArray[np.uint8]

GREY_SIDE = 32  # of the small grey picture of an image

MAX_PIXELS = 89_000_000  # a larger image is refused: it would take half a gigabyte to decode
# Pillow warns of large images on its own; here they are refused with a sentence instead.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def name_of(image: ImageLike, position: int) -> str:
    """Return what to call an image in a message: its path, or its position."""
    return str(image) if isinstance(image, str | Path) else f"image {position}"


def read_pixels(
    image: ImageLike,
    preprocess: Preprocess,
    *,
    augment: Augment = "none",
    rng: np.random.Generator | None = None,
) -> Pixels:
    """Return the pixels of one image as the network wants them: uint8 (size, size, 3).

    Without augmentation the crop is the centre; with it, `rng` decides what is taken and how it is changed.
    """
    changes = draw_changes(preprocess, augment, rng)
    whole = upright(image, changes.wanted(preprocess))
    across, down = whole.width / preprocess.resize, whole.height / preprocess.resize
    left, top, right, bottom = changes.box
    box = (left * across, top * down, right * across, bottom * down)
    side = (preprocess.size, preprocess.size)
    square = whole.resize(side, Image.Resampling.BILINEAR, box=box)
    if changes.colours is not None:
        square = recoloured(square, changes.colours)
    pixels = np.asarray(square)
    return pixels[:, ::-1] if changes.mirrored else pixels


def small_greys(pixels: Pixels) -> Pixels:
    """Return images (n, size, size, 3) as small grey pictures (n, 32, 32): enough to compare what is where in them."""
    greys = np.empty((len(pixels), GREY_SIDE, GREY_SIDE), np.uint8)
    for n, image in enumerate(pixels):
        small = Image.fromarray(image).convert("L").resize((GREY_SIDE, GREY_SIDE), Image.Resampling.BOX)
        greys[n] = np.asarray(small)
    return greys


def upright(image: ImageLike, wanted: int) -> Image.Image:
    """Return the image as RGB the right way up, at least `wanted` pixels wide and high where it is that large."""
    if isinstance(image, np.ndarray):
        return _from_array(image)
    try:
        if isinstance(image, Image.Image):
            return _rgb(ImageOps.exif_transpose(image))
        with _opened(image) as source, open_image(source) as file:
            if file.width * file.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            file.draft("RGB", (wanted, wanted))  # JPEG: decode straight to a smaller size
            return _rgb(ImageOps.exif_transpose(file))
    except Exception as error:  # decoders raise nearly anything on broken files
        raise ImageError(_reason(error)) from error


def _opened(image: str | Path | bytes) -> BinaryIO:
    """Open an image for reading, which must be a regular file."""
    return io.BytesIO(image) if isinstance(image, bytes) else os.fdopen(open_regular(image), "rb")


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey, which PGM files give as 32-bit: keep the high byte
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    return image.convert("RGB")


def _from_array(array: NDArray[np.uint8]) -> Image.Image:
    if array.dtype != np.uint8:
        raise DtypeError(f"an image array must be uint8, got {array.dtype}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in array.shape:
        raise InputError(f"an image array must have shape (H, W), (H, W, 3) or (H, W, 4), got {array.shape}")
    return _rgb(Image.fromarray(array))


def _reason(error: Exception) -> str:
    if isinstance(error, ImageError | NotRegularError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, OSError) and error.filename is not None:
        return f"it cannot be opened ({error.strerror})"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"the image is larger than {MAX_PIXELS:,} pixels"
    return f"broken image ({str(error).rstrip('.')})"
