"""Which image formats are read: those that every Pillow reads, and those of an optional part."""

import importlib
import importlib.util
import re
from functools import cache
from typing import IO

from PIL import Image, UnidentifiedImageError

from dmuh.errors import ImageError

_EVERYWHERE = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
}  # none that would start another program
_OPTIONAL = {"AVIF": (".avif",), "HEIF": (".heic", ".heif")}
_MODULES = {"AVIF": "PIL._avif", "HEIF": "pillow_heif"}
_ADVICE = {"AVIF": "needs Pillow 11.3 or newer", "HEIF": "needs pip install 'dmuh[heic]'"}

_known = _EVERYWHERE | {
    name: suffixes for name, suffixes in _OPTIONAL.items() if importlib.util.find_spec(_MODULES[name]) is not None
}
FORMATS = tuple(_known)
SUFFIXES = tuple(suffix for suffixes in _known.values() for suffix in suffixes)
AVIF = re.compile(rb"....ftypavi[fs]", re.DOTALL)  # how the files start
HEIC = re.compile(rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL)
# what to do about files that could be read, by their suffix
WANTING = {
    suffix: _ADVICE[name] for name in _OPTIONAL if name not in _known for suffix in _OPTIONAL[name]
}  # fmt: skip


def open_image(source: IO[bytes], formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """Open an image of one of these formats, whose pixels are read when they are needed."""
    _prepare()
    try:
        return Image.open(source, formats=formats)
    except UnidentifiedImageError:
        source.seek(0)
        if "HEIF" not in FORMATS and HEIC.match(source.read(12)):
            raise ImageError("a HEIC image needs an optional part of dmuh: pip install 'dmuh[heic]'") from None
        raise


@cache
def _prepare() -> None:
    """Make the optional formats known to Pillow; each image is decoded by one thread, as others are read beside it."""
    if "AVIF" in _known:
        importlib.import_module("PIL.AvifImagePlugin").DEFAULT_MAX_THREADS = 1  # type: ignore[attr-defined]
    if "HEIF" in _known:
        importlib.import_module("pillow_heif").register_heif_opener(
            decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
        )
