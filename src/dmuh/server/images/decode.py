"""Decoding of one image file, in a process that may be killed: pixels for the network, a thumbnail, or a refusal."""

import io
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dmuh.errors import RequestError
from dmuh.files import open_regular
from dmuh.images import Preprocess, open_image, read_pixels, upright
from dmuh.images.pixels import MAX_PIXELS
from dmuh.server.images.upload_check import check_upload

SIDES = {"thumbnail": 256, "picture": 2048}  # pixels of the longer side at most of what is made of a file
_TINY = 64  # pixels of the longer side up to which a thumbnail is lossless: each pixel is visible
_QUICK = 3_000_000  # pixels, times the scans of a JPEG, that are decoded in less than 0.1 s
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCAN = b"\xff\xda"  # marks the start of a scan of a JPEG
_FILE_BYTES = 2**28  # of a file that a thumbnail is made of: 89 megapixels without compression
_COPIES, _BESIDE = 3, 100_000_000  # of the picture in memory, 4 bytes per pixel, and bytes for everything else


def limit_memory(what: Sequence[str], most_pixels: int) -> None:
    """Limit the memory of this process to what the next images should need; beyond it `decode` refuses an image."""
    taken = 0
    with suppress(OSError), open("/proc/self/statm", "rb") as status:  # noqa: PTH123 - a path costs as much as an image
        taken = int(status.read().split()[0]) * _PAGE
    pixels = MAX_PIXELS if SIDES.keys() & set(what) else most_pixels
    most, hard = taken + _COPIES * 4 * pixels + _BESIDE, resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError, OSError):  # not every system can
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def decode(
    what: str, content: bytes, preprocess: Preprocess, most_pixels: int, *, quick: bool
) -> tuple[dict[str, Any], bytes]:
    """Return a dictionary with the type of an image or why it is refused, and the bytes of its pixels or thumbnail.

    `what` is "pixels", where `content` is that of an uploaded file, or "thumbnail" or "picture", where it is the path
    of a file. An image that should be `quick` but is large is not decoded: the dictionary says so.
    """
    wrong: dict[str, Any] = {"status": 404, "error": "the file of this image is not an image any more"}
    try:
        if what in SIDES:
            content = _read_regular(Path(os.fsdecode(content)), _FILE_BYTES)
            with open_image(io.BytesIO(content)) as image:
                pixels = image.width * image.height
        else:
            kind, pixels = check_upload(content, most_pixels)
            wrong = {"status": 422, "error": f"this {kind.name} image is broken"}
        if quick and pixels * max(1, content.count(_SCAN)) > _QUICK:
            return {"large": True}, b""
        if what in SIDES:
            return {}, _smaller(content, SIDES[what])
        return {"kind": kind.name}, read_pixels(content, preprocess).tobytes()
    except RequestError as error:
        return {"status": error.status, "error": str(error)}, b""
    except Exception as error:  # decoders raise nearly anything on broken files
        if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
            wrong = {"status": 413, "error": "this image takes too much memory to decode"}
        return wrong, b""


def _smaller(content: bytes, side: int) -> bytes:
    """Return an image as a WebP file, with the same proportions and a longer side of at most so many pixels."""
    small = upright(content, side)
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=85, method=2, lossless=max(small.size) <= _TINY)
    return buffer.getvalue()


def _read_regular(file: Path, most: int) -> bytes:
    """Return the content of a regular file of up to `most` bytes; a larger one, or a link, is an OSError."""
    with os.fdopen(open_regular(file, follow_links=False), "rb") as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(f"more than {most:,} bytes")
    return content
