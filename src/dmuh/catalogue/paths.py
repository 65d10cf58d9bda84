"""Names of files that are not UTF-8, as text."""

import json
import re
from pathlib import Path

_NO_TEXT = re.compile("[\ud800-\udfff]")  # stands for a byte that is not UTF-8 (os.fsdecode)
_SHOWN_BYTE = re.compile(r"\\x([89a-f][0-9a-f])")


def displayed(name: str) -> str:
    r"""Return a name as text that can be shown: each byte that is not UTF-8 as its number, such as caf\xe9.jpg."""
    if name.isascii():  # as nearly all of a million are
        return name
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
