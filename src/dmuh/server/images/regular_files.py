"""How files are opened that others may have had a hand in: regular files alone, and no more of them than is allowed."""

import os
import stat
from pathlib import Path


def open_regular(file: Path) -> int:
    """Return a handle of a file, to read; what is no regular file, but a pipe, a device or a link, is an OSError."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return handle


def read_regular(file: Path, most: int) -> bytes:
    """Return what is in a regular file of up to `most` bytes; a larger one is an OSError."""
    with os.fdopen(open_regular(file), "rb") as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(f"more than {most:,} bytes")
    return content
