"""Where the images of a collection lie: below one folder, as a rule, or elsewhere.

A catalogue has the path of an image below the collection's root, the folder that all of its first images have in
common. One that came later from elsewhere has its path from the root of the file system on. In a collection whose
images are not all files there is no such folder, and each has its path, or its name, as it is.
"""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dmuh.catalogue import Catalogue
from dmuh.catalogue.paths import as_path
from dmuh.errors import DataError
from dmuh.images import inside_of

log = logging.getLogger(__name__)

_SAMPLED = 512  # images that are looked at before all are served


@dataclass(frozen=True)
class Places:
    """Where images lie: `root`, empty where there is none, and `added`, the folder of those of a service."""

    root: str
    added: str = ""

    @classmethod
    def of(cls, catalogue: Catalogue, folder: Path) -> "Places":
        """Return those of a catalogue in a folder."""
        root = catalogue.about("root")
        return cls(str(as_path(root)) if root else "", str(folder.absolute() / "added"))

    def stored(self, path: str) -> str:
        """Return what a catalogue has of a path that begins at the root of the file system, or of a name."""
        _check_name(path)
        if not path.startswith("/"):
            if self.root:
                raise DataError(f"the images of this collection are files below {self.root}, but {path!a} is none")
            return path
        path = _plain(path)
        below = self.root if self.root.endswith("/") else f"{self.root}/"
        return path[len(below) :] if self.root and path.startswith(below) else path

    def whole(self, path: bytes, *, added: bool) -> str:
        """Return the path of an image, of which a catalogue has this."""
        text = os.fsdecode(path)
        if added:
            return os.path.join(self.added, text)  # noqa: PTH118 (a million of them)
        return os.path.join(self.root, text) if self.root else text  # noqa: PTH118


def common_root(paths: Iterable[str]) -> str:
    """Return the folder that all files have in common; empty if some are none, or there are none."""
    root: str | None = None
    for path in paths:
        _check_name(path)
        if not path.startswith("/"):
            return ""
        folder = os.path.dirname(_plain(path))  # noqa: PTH120 (a million of them)
        if root is None:
            root = folder
        elif folder != root and not (root == "/" or folder.startswith(f"{root}/")):
            root = os.path.commonpath([root, folder])
    return root or ""


def check_links(catalogue: Catalogue, root: Path, name: Path) -> None:
    """Warn if images of a catalogue are links that lead out of its root, which a service does not follow.

    Some are looked at; if all of them are such links, there is nothing to show.
    """
    rows = [row for row in catalogue.sample(_SAMPLED, seed=0) if not row.added]
    files = [root / os.fsdecode(row.path) for row in rows]
    inside = inside_of(root)
    out = [file for file in files if file.is_relative_to(root) and file.exists() and not inside(file)]
    if out and len(out) == len(files):
        raise DataError(
            f"all images of {name} are links that lead out of {root}, such as {out[0]}: index the folder that they "
            "lead to"
        )
    if out:
        log.warning("images of %s are links out of %s, such as %s: their files are not shown", name, root, out[0])


def elsewhere(catalogue: Catalogue) -> list[Path]:
    """Return the folders of images that came later, from elsewhere than the root."""
    return [Path(folder) for folder in json.loads(catalogue.about("elsewhere") or "[]")]


def note_elsewhere(catalogue: Catalogue, stored: Iterable[str]) -> None:
    """Note the folder of images whose stored paths are not below the root."""
    folder = common_root(path for path in stored if path.startswith("/"))
    known = elsewhere(catalogue)
    if folder and catalogue.about("root") and not any(Path(folder).is_relative_to(other) for other in known):
        catalogue.note(elsewhere=json.dumps([*map(str, known), folder]))


def _check_name(path: str) -> None:
    """Raise unless a file can have this path."""
    try:
        if "\0" not in path and (path.isascii() or os.fsencode(path)):
            return
    except UnicodeEncodeError:
        pass
    raise DataError(f"an image has a name that no file can have, {path!a}: index it by another one")


def _plain(path: str) -> str:
    """Return the same path without "..", which would lead out of a folder, and without empty parts."""
    if "/.." in path:
        whole = Path(path)
        if ".." in whole.parts:
            n = len(whole.parts) - whole.parts[::-1].index("..")
            return str(Path(os.path.realpath(Path(*whole.parts[:n])), *whole.parts[n:]))
    return str(Path(path)) if "//" in path or "/./" in path else path
