"""From image files to pixels: the one path that training and encoding share.

An image is a path, a Pillow image, the bytes of a file or a uint8 array (H, W), (H, W, 3) or (H, W, 4). It is turned
upright, stretched to a square and cropped, in one pass over its pixels. Nothing here knows about networks: pixels stay
uint8, the network normalises them itself.
"""

import io
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from dmuh.errors import DtypeError, ImageError, InputError

log = logging.getLogger(__name__)

ImageLike = str | Path | bytes | Image.Image | NDArray[np.uint8]
Images = Sequence[ImageLike] | NDArray[np.uint8]  # an array holds one image a row
Pixels = NDArray[np.uint8]
OnBadImage = Literal["skip", "fail"]
Augment = Literal["none", "crop", "crop+flip"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # none that would start another program
_AHEAD = 2  # batches read ahead

MAX_PIXELS = 89_000_000  # a larger image is refused: it would take half a gigabyte to decode
# Pillow warns of large images on its own; here they are refused with a sentence instead.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


@dataclass(frozen=True)
class Preprocess:
    """The geometry a network wants: stretched to `resize` × `resize`, of which a `size` × `size` crop is taken."""

    size: int
    resize: int


@dataclass(frozen=True)
class Batch:
    """Pixels uint8 (n, size, size, 3) of the images at `positions` (n,): those that could be read."""

    positions: NDArray[np.int64]
    pixels: Pixels


@dataclass
class BadImages:
    """The images that could not be read so far, by name, each with the reason."""

    reasons: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reasons)

    def summary(self, most: int = 5) -> str:
        """Return one sentence that counts and names them."""
        shown = "; ".join(list(self.reasons.values())[:most])
        more = f"; and {len(self) - most} more" if len(self) > most else ""
        noun = "image was" if len(self) == 1 else "images were"
        return f"{len(self)} unreadable {noun} skipped: {shown}{more}"


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

    Without augmentation the crop is the centre; with it, `rng` places the crop and tosses the flip.
    """
    upright = _upright(image, preprocess.resize)
    slack = preprocess.resize - preprocess.size
    left = top = slack / 2
    if augment != "none" and rng is not None:
        left, top = rng.integers(0, slack + 1, size=2)
    across, down = upright.width / preprocess.resize, upright.height / preprocess.resize
    box = (left * across, top * down, (left + preprocess.size) * across, (top + preprocess.size) * down)
    side = (preprocess.size, preprocess.size)
    square = upright.resize(side, Image.Resampling.BILINEAR, box=box)
    pixels = np.asarray(square)
    if augment == "crop+flip" and rng is not None and rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    return pixels


def read_batches(
    images: Images,
    batches: Iterable[NDArray[np.int64]],
    preprocess: Preprocess,
    *,
    augment: Augment = "none",
    seed: tuple[int, ...] = (),
    on_bad_image: OnBadImage = "fail",
    bad: BadImages | None = None,
    workers: int = 0,
) -> Iterator[Batch]:
    """Yield the pixels of each batch of positions, read by `workers` threads ahead of their use.

    An image's augmentation depends on `seed` and its position only, never on the batch or the thread. An unreadable
    image ends the reading (`fail`) or is left out and noted in `bad` (`skip`).
    """

    def read(position: int) -> Pixels | ImageError:
        rng = np.random.default_rng((*seed, position)) if augment != "none" else None
        try:
            return read_pixels(images[position], preprocess, augment=augment, rng=rng)
        except ImageError as error:
            return ImageError(f"{name_of(images[position], position)}: {error}")

    def collect(positions: NDArray[np.int64], results: Iterable[Pixels | ImageError]) -> Batch:
        pixels = np.empty((len(positions), preprocess.size, preprocess.size, 3), np.uint8)
        kept: list[np.int64] = []
        for position, result in zip(positions, results, strict=True):
            if isinstance(result, ImageError):
                if on_bad_image == "fail":
                    raise ImageError(f"{result} (on_bad_image=skip leaves such images out)")
                if bad is not None:
                    bad.reasons.setdefault(name_of(images[position], int(position)), str(result))
                continue
            pixels[len(kept)] = result
            kept.append(position)
        return Batch(np.asarray(kept, np.int64), pixels[: len(kept)])

    if workers == 0:
        for positions in batches:
            yield collect(positions, map(read, positions.tolist()))
        return
    with ThreadPoolExecutor(workers) as pool:  # Pillow decodes and resizes outside the interpreter's lock
        waiting: list[tuple[NDArray[np.int64], list[Future[Pixels | ImageError]]]] = []
        for positions in batches:
            waiting.append((positions, [pool.submit(read, p) for p in positions.tolist()]))
            if len(waiting) > _AHEAD:
                done, futures = waiting.pop(0)
                yield collect(done, (future.result() for future in futures))
        for done, futures in waiting:
            yield collect(done, (future.result() for future in futures))


def find_images(root: Path) -> list[Path]:
    """Return the image files below a folder, ordered by path; hidden files and folders are passed over."""
    found = (
        path
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
    )
    return sorted(found)


def _upright(image: ImageLike, wanted: int) -> Image.Image:
    """Return the image as RGB the right way up, at least `wanted` pixels a side where it is that large."""
    if isinstance(image, np.ndarray):
        return _from_array(image)
    try:
        if isinstance(image, Image.Image):
            return _rgb(ImageOps.exif_transpose(image))
        source = io.BytesIO(image) if isinstance(image, bytes) else image
        with Image.open(source, formats=_FORMATS) as file:
            if file.width * file.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            file.draft("RGB", (wanted, wanted))  # JPEG: decode straight to a smaller size
            return _rgb(ImageOps.exif_transpose(file))
    except Exception as error:  # decoders raise nearly anything on broken files
        raise ImageError(_reason(error)) from error


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
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"the image is larger than {MAX_PIXELS:,} pixels"
    return f"broken image ({str(error).rstrip('.')})"
