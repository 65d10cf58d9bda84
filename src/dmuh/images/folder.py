"""The image files below a folder, and what other files lie there."""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dmuh.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
_NOT_COUNTED = {"thumbs.db", "ehthumbs.db", "desktop.ini"}  # what Windows leaves in folders of images
_MOST_NAMED = 5  # file types that a note names


@dataclass(frozen=True)
class ImageFolder:
    """The image files below a folder, ordered by path, and how many other files are there, by type such as .heic."""

    paths: list[Path]
    ignored: Counter[str]


def look_through(root: Path) -> ImageFolder:
    """Find the image files below a folder; hidden files and folders are passed over, other files are counted.

    Links to folders are passed over too, and links that lead nowhere or in a circle.
    """
    found: list[str] = []
    ignored: Counter[str] = Counter()
    folders = [str(root)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif _is_file(entry):
                        suffix = Path(entry.name).suffix.lower()
                        if suffix in SUFFIXES:
                            found.append(entry.path)
                        elif entry.name.lower() not in _NOT_COUNTED:
                            ignored[suffix] += 1
    except OSError as error:
        raise DataError(f"cannot look through {error.filename or root}: {error.strerror}") from error
    return ImageFolder(sorted(map(Path, found), key=lambda path: path.parts), ignored)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle, or into a folder that may not be read
        return False


def find_images(root: Path) -> list[Path]:
    """Return the image files below a folder, ordered by path, as `look_through` finds them."""
    return look_through(root).paths


def ignored_note(ignored: Counter[str]) -> str:
    """Return a sentence that counts the files that are no images and names their types; empty if there are none.

    >>> ignored_note(Counter({".heic": 2, ".txt": 1, "": 1}))
    '4 files ignored: .heic, without a suffix, .txt'
    """
    if not ignored:
        return ""
    by_count = sorted(ignored, key=lambda suffix: (-ignored[suffix], suffix))
    names = [suffix if suffix.isprintable() else ascii(suffix) for suffix in by_count[:_MOST_NAMED]]
    named = ", ".join(suffix or "without a suffix" for suffix in names)
    more = f" and {len(by_count) - _MOST_NAMED} more types" if len(by_count) > _MOST_NAMED else ""
    n = ignored.total()
    return f"{n:,} file{'' if n == 1 else 's'} ignored: {named}{more}"
