"""The files behind the catalogue, opened only where they belong, and small pictures of them."""

import io
import os
from functools import lru_cache
from pathlib import Path

from PIL import Image

from dmuh.errors import DmuhError, RequestError
from dmuh.images import FORMATS, upright
from dmuh.server.catalogue import Row

_SIDE = 256  # pixels that a thumbnail has at most
_TINY = 64  # pixels up to which a picture is kept exactly: every one of them is seen
_KEPT = 2048  # thumbnails in memory, some 10 kB each


class Pictures:
    """The image files of a service: those of its collection below `root`, and those that were added."""

    def __init__(self, root: Path, added: Path) -> None:
        self._folders = (root.resolve(), added.resolve())
        self._kept = lru_cache(_KEPT)(self._thumbnail)

    def read(self, row: Row) -> tuple[bytes, str]:
        """Return the file of an image as it is, and its media type."""
        content = self._read(row.path, row.added)
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                return content, Image.MIME[image.format or ""]
        except Exception as error:  # decoders raise nearly anything on broken files
            raise RequestError(404, f"the file of image {row.id} is not an image any more") from error

    def thumbnail(self, row: Row) -> bytes:
        """Return a small picture of an image as a WebP file, its proportions kept."""
        return self._kept(row.id, row.path, row.added)

    def _thumbnail(self, id_: int, path: bytes, added: int) -> bytes:
        content = self._read(path, added)
        try:
            small = upright(content, _SIDE)
        except DmuhError as error:
            raise RequestError(404, f"the file of image {id_} is not an image any more") from error
        small.thumbnail((_SIDE, _SIDE))
        buffer = io.BytesIO()
        small.save(buffer, "WEBP", quality=85, method=2, lossless=max(small.size) <= _TINY)
        return buffer.getvalue()

    def _read(self, path: bytes, added: int) -> bytes:
        """Return what is in a file; one that is, or has become, a link out of its folder is not opened."""
        folder = self._folders[added]
        file = (folder / os.fsdecode(path)).resolve()
        if not file.is_relative_to(folder):
            raise RequestError(404, "the file of this image is not in its collection any more")
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as opened:
                return opened.read()
        except OSError as error:
            raise RequestError(404, "the file of this image is gone") from error
