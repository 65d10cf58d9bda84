"""Which files may be uploaded: one whole image, of a type that browsers show or phones take, and nothing besides.

The end of the image is found from its format, so that a file which is an image and an archive or a web page at once is
refused. Whether the pixels can be decoded is found later, in another process.
"""

import io
import re
import zipfile
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image

from dmuh.errors import RequestError
from dmuh.images import FORMATS, open_image
from dmuh.images.formats import AVIF, HEIC

_JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)  # a marker, not a byte of the compressed pixels
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}
_SCANS = 100  # of a JPEG: each goes over all pixels again; ten are usual
_PARTS, _PART_BYTES = 4096, 200  # parts of a file, and one more per so many bytes: a million take seconds
_IMAGE_BOXES = frozenset((b"ftyp", b"meta", b"mdat", b"moov", b"free", b"skip", b"uuid"))  # of AVIF and HEIC
_SIDE = 65_535  # pixels, the most of a JPEG: libraries allocate a table entry per row


class Kind(NamedTuple):
    """An image type: its name in Pillow, the suffix of its files, and what finds the end of the image in a file."""

    name: str
    suffix: str
    end: Callable[[bytes, "Parts"], int | None]


class Parts:
    """Counts the parts that a file is made of, and the scans of a JPEG; too many are refused."""

    def __init__(self, name: str, length: int) -> None:
        self._name = name
        self._most = {"parts": _PARTS + length // _PART_BYTES, "scans": _SCANS}
        self._left = dict(self._most)

    def count(self, what: str = "parts") -> None:
        """Count one more."""
        self._left[what] -= 1
        if self._left[what] < 0:
            raise RequestError(422, f"this {self._name} image has more than {self._most[what]:,} {what}")


def check_upload(content: bytes, most_pixels: int) -> tuple[Kind, int]:
    """Return the type and the pixels of an uploaded image; anything else is refused with a sentence."""
    if not content:
        raise RequestError(400, "the upload is empty: send the image itself as the body of the request")
    kind = next((kind for start, kind in _STARTS.items() if start.match(content)), None)
    if kind is None:
        raise RequestError(415, f"this is not {_NAMES}{_HEIC_NEEDS if HEIC.match(content) else ''}")
    parts = Parts(kind.name, len(content))
    end = kind.end(content, parts)
    if end is None or end > len(content):
        raise RequestError(422, f"this {kind.name} image is cut short or broken")
    if not _may_follow(content, end, kind, parts):
        raise RequestError(
            422, f"{len(content) - end:,} bytes follow the end of this {kind.name} image: leave them out"
        )
    if zipfile.is_zipfile(io.BytesIO(content)):
        raise RequestError(422, f"this {kind.name} image is a ZIP archive too")
    return kind, _checked_size(content, kind, most_pixels)


def _checked_size(content: bytes, kind: Kind, most_pixels: int) -> int:
    try:
        with open_image(io.BytesIO(content), (kind.name,)) as image:  # reads the header only
            width, height = image.size
    except Image.DecompressionBombError as error:
        raise RequestError(413, f"an image may have {most_pixels:,} pixels at most") from error
    except Exception as error:  # decoders raise nearly anything on broken files
        raise RequestError(422, f"this {kind.name} image is broken") from error
    if width * height > most_pixels:
        raise RequestError(413, f"an image may have {most_pixels:,} pixels at most")
    if max(width, height) > _SIDE:
        raise RequestError(413, f"an image may have {_SIDE:,} pixels per side at most, got {max(width, height):,}")
    return width * height


def _may_follow(content: bytes, at: int, kind: Kind, parts: Parts) -> bool:
    """Return whether what follows an image is padding, or what phones put behind a photograph.

    That is further whole photographs, then a short film: boxes of the ISO media format, up to the end of the file.
    """
    if not content[at:].strip(b"\0"):
        return True
    if kind.name != "JPEG":
        return False
    while content.startswith(b"\xff\xd8\xff", at):
        end = _jpeg_end(content, parts, at + 2)
        if end is None or end > len(content):
            return False
        at = end
    return not content[at:].strip(b"\0") or (content[at + 4 : at + 8] == b"ftyp" and _are_boxes(content, at, parts))


def _are_boxes(content: bytes, at: int, parts: Parts) -> bool:
    return _boxes_end(content, parts, at) == len(content)


def _image_boxes_end(content: bytes, parts: Parts) -> int | None:
    return _boxes_end(content, parts, 0, _IMAGE_BOXES)


def _boxes_end(content: bytes, parts: Parts, at: int, names: frozenset[bytes] | None = None) -> int:
    """Return where the boxes of the ISO media format end that begin here, those of these names or any."""
    while at < len(content):
        parts.count()
        size, name, least = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8], 8
        if size == 1:  # the true one, of eight bytes, follows the name
            size, least = int.from_bytes(content[at + 8 : at + 16], "big"), 16
        is_name = len(name) == 4 and name.isascii() and name.decode().isprintable()
        if size < least or not (is_name if names is None else name in names):
            return at
        at += size
    return at


def _jpeg_end(content: bytes, parts: Parts, at: int = 2) -> int | None:
    while (found := _JPEG_MARKER.search(content, at)) is not None:
        marker, at = content[found.start() + 1], found.end()
        if marker == 0xD9:
            return at
        parts.count()
        if marker == 0xDA:
            parts.count("scans")
        if marker not in _NO_LENGTH:
            at += max(2, int.from_bytes(content[at : at + 2], "big"))
    return None


def _png_end(content: bytes, parts: Parts) -> int | None:
    at = 8
    while at + 12 <= len(content):
        parts.count()
        length, name = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        at += 12 + length
        if name == b"IEND":
            return at
    return None


def _gif_end(content: bytes, parts: Parts) -> int | None:
    if len(content) < 13:
        return None
    at = 13 + _gif_colours(content[10])
    while at < len(content):
        parts.count()
        block = content[at]
        if block == 0x3B:
            return at + 1
        if block == 0x21:  # an extension
            at += 2
        elif block == 0x2C and at + 10 <= len(content):  # a picture
            at += 11 + _gif_colours(content[at + 9])
        else:
            return None
        while at < len(content) and content[at]:  # its parts, each with its length before it
            parts.count()
            at += 1 + content[at]
        at += 1
    return None


def _gif_colours(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp_end(content: bytes, parts: Parts) -> int | None:
    end, at = 8 + int.from_bytes(content[4:8], "little"), 12
    while at + 8 <= min(end, len(content)):
        parts.count()
        length = int.from_bytes(content[at + 4 : at + 8], "little")
        if content[at : at + 4] == b"ANMF":
            length = min(length, 16)  # a frame, whose own parts follow
        at += 8 + length + length % 2
    return end


_STARTS = {
    re.compile(rb"\xff\xd8\xff"): Kind("JPEG", ".jpg", _jpeg_end),
    re.compile(rb"\x89PNG\r\n\x1a\n"): Kind("PNG", ".png", _png_end),
    re.compile(rb"GIF8[79]a"): Kind("GIF", ".gif", _gif_end),
    re.compile(rb"RIFF....WEBP", re.DOTALL): Kind("WEBP", ".webp", _webp_end),
}
_STARTS |= {
    start: Kind(name, suffix, _image_boxes_end)
    for start, name, suffix in ((AVIF, "AVIF", ".avif"), (HEIC, "HEIF", ".heic"))
    if name in FORMATS
}
_NAMES = "a JPEG, PNG, WebP, GIF, AVIF or HEIC image"
_HEIC_NEEDS = ": this service reads no HEIC, which needs pip install 'dmuh[heic]'"
KINDS = {kind.name: kind for kind in _STARTS.values()}
