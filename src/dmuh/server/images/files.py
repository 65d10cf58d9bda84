"""ImageFiles: the image files of a catalogue, opened only below their folders, and their thumbnails."""

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dmuh.catalogue import Row
from dmuh.errors import RequestError
from dmuh.files import open_regular
from dmuh.images.formats import AVIF, HEIC
from dmuh.server.images.decoders import Decoders

_CACHED = 2048  # thumbnails in memory, some 10 kB each
_PART = 65_536  # bytes of a file that are read and sent at a time
_GONE = "the file of this image is gone"
_TYPES = {
    re.compile(rb"\xff\xd8\xff"): "image/jpeg",
    re.compile(rb"\x89PNG\r\n\x1a\n"): "image/png",
    re.compile(rb"GIF8[79]a"): "image/gif",
    re.compile(rb"RIFF....WEBP", re.DOTALL): "image/webp",
    re.compile(rb"BM"): "image/bmp",
    AVIF: "image/avif",
    HEIC: "image/heic",
    re.compile(rb"II[*+]\0|MM\0[*+]"): "image/tiff",
    re.compile(rb"P[1-6fy]\s"): "image/x-portable-anymap",
}


_SHOWN = {"image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp", "image/avif"}  # by every browser


class ImageFile:
    """An open image file: its length, media type, and a tag (ETag) that changes with its content.

    It is read in parts, so that a client that reads slowly, or never, costs little memory.
    """

    def __init__(self, file: Path, pool: ThreadPoolExecutor) -> None:
        self.file = file
        self._pool = pool
        self._handle = open_regular(file, follow_links=False)
        about = os.fstat(self._handle)
        self.length = about.st_size
        self.tag = f'"{about.st_mtime_ns:x}-{about.st_size:x}-{about.st_ino:x}"'

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    @property
    def kind(self) -> str | None:
        """The media type, by how the file starts; None if it is no image."""
        start = os.pread(self._handle, 16, 0)
        return next((kind for pattern, kind in _TYPES.items() if pattern.match(start)), None)

    @property
    def is_shown(self) -> bool:
        """Whether browsers show it as it is."""
        return self.kind in _SHOWN

    async def part(self, at: int) -> bytes:
        """Return the next bytes from a position on."""
        wanted = min(_PART, self.length - at)
        part = await asyncio.get_running_loop().run_in_executor(self._pool, os.pread, self._handle, wanted, at)
        if not part:
            raise EOFError("a file was cut short while it was sent")
        return part


class ImageFiles:
    """The image files of a service: those of its collection below `root` or `elsewhere`, and those that were added."""

    def __init__(self, root: Path, added: Path, decoders: Decoders, elsewhere: Sequence[Path] = ()) -> None:
        self._folders = (root.resolve(), added.resolve())
        self._elsewhere = [folder.resolve() for folder in elsewhere]
        self._decoders = decoders
        self._thumbnails: OrderedDict[tuple[int, str], bytes] = OrderedDict()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="dmuh-file")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    async def open(self, row: Row) -> ImageFile:
        """Open the file of an image."""
        opening = asyncio.get_running_loop().run_in_executor(self._pool, self._open, row)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_again)
            raise

    async def thumbnail(self, row: Row, known: str) -> tuple[str, bytes | None]:
        """Return the tag of an image, and its thumbnail, a WebP file; None if its tag is in `known`."""
        opened = await self.open(row)
        opened.close()
        if is_known(opened.tag, known):
            return opened.tag, None
        key = row.id, opened.tag
        small = self._thumbnails.pop(key, None)
        if small is None:
            small = await self._decoders.thumbnail(opened.file, opened.length)
        self._thumbnails[key] = small
        while len(self._thumbnails) > _CACHED:
            self._thumbnails.popitem(last=False)
        return opened.tag, small

    async def picture(self, file: ImageFile) -> bytes:
        """Return a large picture of an image that browsers do not show, a WebP file."""
        return await self._decoders.picture(file.file, file.length)

    def _open(self, row: Row) -> ImageFile:
        """Open a file; one that is gone, or has become a link out of its folder, is not opened."""
        folder = self._folders[row.added]
        try:
            file = (folder / os.fsdecode(row.path)).resolve()
            allowed = [folder] if row.added else [folder, *self._elsewhere]
            if not any(file.is_relative_to(one) for one in allowed):
                raise RequestError(404, "the file of this image is not in its collection any more")
            opened = ImageFile(file, self._pool)
        except (OSError, RuntimeError, ValueError) as error:  # loops of links, and names with a zero byte
            raise RequestError(404, _GONE) from error
        if opened.kind is None:
            opened.close()
            raise RequestError(404, f"the file of image {row.id} is not an image any more")
        return opened


def _close_again(opening: "asyncio.Future[ImageFile]") -> None:
    """Close a file whose request was cancelled while it was opened."""
    if opening.exception() is None:
        opening.result().close()


def is_known(tag: str, known: str) -> bool:
    """Return whether a tag is among those that a browser says it has (If-None-Match)."""
    return known.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in known.split(",")]
