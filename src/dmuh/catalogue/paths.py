"""Paths of images: below one folder, with no link that leads out of it; and names that are not UTF-8, as text."""

import json
import logging
import os
import re
from pathlib import Path

from dmuh.collection import Collection, Item
from dmuh.errors import DataError
from dmuh.images import inside_of

log = logging.getLogger(__name__)

_NO_TEXT = re.compile("[\ud800-\udfff]")  # stands for a byte that is not UTF-8 (os.fsdecode)
_SHOWN_BYTE = re.compile(r"\\x([89a-f][0-9a-f])")


def locate(collection: Collection, items: dict[int, Item]) -> tuple[Path, dict[int, str]]:
    """Return the folder that all files lie below, and the path of each in it; links that lead out of it are left out.

    An image that is not a file, such as one of an array, keeps its name.
    """
    wrong = next((item.path for item in items.values() if not _is_name(item.path)), None)
    if wrong is not None:
        raise DataError(f"{collection.path} has an image of a name that no file can have, {wrong!a}: index it again")
    files = {id_: _without_dots(Path(item.path)) for id_, item in items.items() if item.path.startswith("/")}
    root = Path(os.path.commonpath({path.parent for path in files.values()} or {Path("/")}))
    inside = inside_of(root)
    out = {id_ for id_, path in files.items() if not inside(path)}
    if out:
        log.warning("%s images of %s are links out of %s and are passed over", f"{len(out):,}", collection.path, root)
    if out and len(out) == len(items):
        raise DataError(
            f"all images of {collection.path} are links that lead out of {root}, such as {files[min(out)]}: index the "
            "folder that they lead to"
        )
    inner = {id_: item.path for id_, item in items.items() if id_ not in out}
    return root, {id_: str(files[id_].relative_to(root)) if id_ in files else path for id_, path in inner.items()}


def _is_name(path: str) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _without_dots(path: Path) -> Path:
    """Return the same path without "..", which would lead out of a folder."""
    if ".." not in path.parts:
        return path
    n = len(path.parts) - path.parts[::-1].index("..")
    return Path(os.path.realpath(Path(*path.parts[:n])), *path.parts[n:])


def displayed(name: str) -> str:
    r"""Return a name as text that can be shown: each byte that is not UTF-8 as its number, such as caf\xe9.jpg."""
    return _NO_TEXT.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}" if _is_byte(found[0]) else "\ufffd", name)


def named(shown: str) -> str:
    """Return the name that `displayed` shows as this text, if it has bytes that are not UTF-8."""
    return _SHOWN_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), shown)


def _is_byte(character: str) -> bool:
    """Return whether os.fsdecode makes this character of a byte; others are in no name of a file."""
    return "\udc80" <= character <= "\udcff"


def as_text(path: Path) -> str:
    """Return a path as text that SQLite can keep: as it is, or in JSON where its name is not UTF-8."""
    return json.dumps(str(path)) if _NO_TEXT.search(str(path)) else str(path)


def as_path(text: str) -> Path:
    """Return the path that `as_text` made this text of."""
    return Path(json.loads(text) if text.startswith('"') else text)
