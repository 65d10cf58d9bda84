"""The image files below a folder, and what other files lie there."""

import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dmuh.errors import DataError
from dmuh.images.formats import SUFFIXES, WANTING

log = logging.getLogger(__name__)

_NOT_COUNTED = {"thumbs.db", "ehthumbs.db", "desktop.ini"}  # what Windows leaves in folders of images
_MOST_NAMED = 5  # file types that a note names


@dataclass(frozen=True)
class ImageFolder:
    """The image files below a folder, ordered by path, and how many other files are there, by type such as .heic."""

    paths: list[Path]
    ignored: Counter[str]


@dataclass(frozen=True)
class FolderImage:
    """An image file of a folder: its path below it, when it was changed, in nanoseconds, and its bytes."""

    path: Path
    stamp: int
    size: int


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
                        suffix = os.path.splitext(entry.name)[1].lower().rstrip(".")  # noqa: PTH122 (quicker)
                        if suffix in SUFFIXES:
                            found.append(entry.path)
                        elif entry.name.lower() not in _NOT_COUNTED:
                            ignored[suffix] += 1
    except OSError as error:
        raise DataError(f"cannot look through {error.filename or root}: {error.strerror}") from error
    return ImageFolder([Path(path) for path in sorted(found, key=lambda path: path.split("/"))], ignored)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle, or into a folder that may not be read
        return False


def find_images(root: Path) -> list[Path]:
    """Return the image files below a folder, ordered by path, as `look_through` finds them."""
    return look_through(root).paths


def check_folder(root: Path) -> None:
    """Raise if there is no such folder."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")


def folder_images(root: Path) -> list[FolderImage]:
    """Return the image files below a folder, ordered by path, with what tells whether one was changed.

    Links that lead out of the folder, and files that are gone again, are left out. What is left out is logged.
    """
    check_folder(root)
    folder, inside = look_through(root), inside_of(root)
    if folder.ignored:
        log.warning("%s: %s", root, ignored_note(folder.ignored))
    paths = [path for path in folder.paths if inside(path)]
    if len(paths) < len(folder.paths):
        log.warning("%s links lead out of %s and are passed over", f"{len(folder.paths) - len(paths):,}", root)
    found = []
    for path in paths:
        with suppress(OSError):
            about = path.stat()
            found.append(FolderImage(path.relative_to(root), about.st_mtime_ns, about.st_size))
    return found


def inside_of(root: Path) -> Callable[[Path], bool]:
    """Return a function that tells whether a file lies below a folder, links followed."""
    folder, real_parent = os.path.realpath(root), cache(os.path.realpath)  # few folders have many files

    def inside(path: Path) -> bool:
        file = Path(real_parent(path.parent), path.name)
        return (Path(os.path.realpath(file)) if file.is_symlink() else file).is_relative_to(folder)

    return inside


def ignored_note(ignored: Counter[str]) -> str:
    """Return a sentence that counts the files that are not read and names their types; empty if there are none.

    Of images that could be read it says what that needs: "2 files ignored: .heic (needs pip install 'dmuh[heic]')".

    >>> ignored_note(Counter({".mov": 2, ".txt": 1, "": 1}))
    '4 files ignored: .mov, without a suffix, .txt'
    """
    if not ignored:
        return ""
    by_count = sorted(ignored, key=lambda suffix: (-ignored[suffix], suffix))
    by_count.sort(key=lambda suffix: suffix not in WANTING)
    names = [suffix if suffix.isprintable() else ascii(suffix) for suffix in by_count[:_MOST_NAMED]]
    names = [f"{name} ({WANTING[name]})" if name in WANTING else name for name in names]
    named = ", ".join(suffix or "without a suffix" for suffix in names)
    more = f" and {len(by_count) - _MOST_NAMED} more types" if len(by_count) > _MOST_NAMED else ""
    n = ignored.total()
    return f"{n:,} file{'' if n == 1 else 's'} ignored: {named}{more}"
