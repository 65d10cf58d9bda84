"""How files are read that others may have had a hand in: regular files alone, and no more of them than is allowed."""

import os
from pathlib import Path

from dmuh.files import open_regular


def read_regular(file: Path, most: int) -> bytes:
    """Return what is in a regular file of up to `most` bytes; a larger one, or a link, is an OSError."""
    with os.fdopen(open_regular(file, follow_links=False), "rb") as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(f"more than {most:,} bytes")
    return content
