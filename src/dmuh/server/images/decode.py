"""What is done with an image file of strangers, in a process that can be ended: it is checked and drawn, or refused."""

import io
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image

from dmuh.errors import RequestError
from dmuh.images import FORMATS, Preprocess, read_pixels, upright
from dmuh.images.pixels import MAX_PIXELS
from dmuh.server.images.regular_files import read_regular
from dmuh.server.images.upload_check import check_upload

SIDE = 256  # pixels that a thumbnail has at most
_TINY = 64  # pixels up to which a picture is kept exactly: every one of them is seen
_QUICK = 3_000_000  # pixels, as often as a JPEG goes over them, that are decoded in less than a tenth of a second
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCAN = b"\xff\xda"  # where a JPEG goes over the picture, perhaps again
_FILE_BYTES = 2**28  # of a file that a thumbnail is made of: as large as 89 megapixels are that nothing compressed
_COPIES, _BESIDE = 3, 100_000_000  # of the picture while it is drawn, four bytes a pixel, and bytes for all else


def limit_memory(what: Sequence[str], most_pixels: int) -> None:
    """Have this process fail where an image would take much more memory than it should: see `decode`."""
    taken = 0
    with suppress(OSError), open("/proc/self/statm", "rb") as status:  # noqa: PTH123 - a path costs as much as an image
        taken = int(status.read().split()[0]) * _PAGE
    pixels = MAX_PIXELS if "thumbnail" in what else most_pixels
    most, hard = taken + _COPIES * 4 * pixels + _BESIDE, resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(ValueError, OSError):  # not every system can
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def decode(
    what: str, content: bytes, preprocess: Preprocess, most_pixels: int, *, quick: bool
) -> tuple[dict[str, Any], bytes]:
    """Return what there is to say of an image, and its pixels or its thumbnail.

    `what` is "pixels" for the file of an upload, or "thumbnail" for the path of a file. One that should be `quick` but
    is not, is left for another process.
    """
    wrong: dict[str, Any] = {"status": 404, "error": "the file of this image is not an image any more"}
    try:
        if what == "thumbnail":
            content = read_regular(Path(os.fsdecode(content)), _FILE_BYTES)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                pixels = image.width * image.height
        else:
            kind, pixels = check_upload(content, most_pixels)
            wrong = {"status": 422, "error": f"this {kind.name} image is broken"}
        if quick and pixels * max(1, content.count(_SCAN)) > _QUICK:
            return {"large": True}, b""
        if what == "thumbnail":
            return {}, _thumbnail(content)
        return {"kind": kind.name}, read_pixels(content, preprocess).tobytes()
    except RequestError as error:
        return {"status": error.status, "error": str(error)}, b""
    except Exception as error:  # decoders raise nearly anything on broken files
        if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
            wrong = {"status": 413, "error": "this image takes too much memory to decode"}
        return wrong, b""


def _thumbnail(content: bytes) -> bytes:
    """Return a small picture of an image, its proportions kept."""
    small = upright(content, SIDE)
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=85, method=2, lossless=max(small.size) <= _TINY)
    return buffer.getvalue()
