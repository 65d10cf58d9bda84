"""How a catalogue comes to its images: from a collection that was indexed before, or from a folder."""

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from dmuh.collection import Collection
from dmuh.encoder import Hasher
from dmuh.errors import ConfigError, DataError
from dmuh.files import clear_torn
from dmuh.images import Reading, ignored_note, look_through
from dmuh.server.catalogue import Catalogue, Entry
from dmuh.server.locating import NO_TEXT, as_path, as_text, inside_of, locate
from dmuh.server.writer import is_own

log = logging.getLogger(__name__)

_PART = 4096  # images that are encoded and kept together: what an interruption costs at most
_MANY = 10  # images of which some should be found again in the same folder
_FOLDER = "folder"  # where the images are from, if not from an index, whose checksum stands there


@dataclass(frozen=True)
class Place:
    """Where a service keeps its state: the catalogue, and the files of images that were added through it."""

    path: Path

    @property
    def catalogue(self) -> Path:
        """The catalogue."""
        return self.path / "catalogue.sqlite"

    @property
    def added(self) -> Path:
        """The added images."""
        return self.path / "added"

    @property
    def set_aside(self) -> Path:
        """Files of added images that the catalogue does not know."""
        return self.path / "set-aside"

    @property
    def lock(self) -> Path:
        """What keeps a second service out."""
        return self.path / ".lock"

    def check_apart(self, images: Path) -> None:
        """Raise if added images would be found as images of the folder that is served."""
        folder = os.path.realpath(images)
        for own in (self.added, self.set_aside):
            real = Path(os.path.realpath(own))
            if real.is_relative_to(folder) and not any(part[0] == "." for part in real.relative_to(folder).parts):
                raise ConfigError(
                    f"--state {self.path} would keep added images in {own}, among the images of {images}: give a "
                    "folder outside of it, or one whose name begins with a dot"
                )

    def open(self, hasher: Hasher) -> Catalogue:
        """Open the catalogue, which must hold codes of this model, and set files aside that it does not know.

        The caller must hold the lock.
        """
        is_new = not self.catalogue.is_file() or not self.catalogue.stat().st_size
        if is_new and self.added.is_dir() and any(self.added.iterdir()):
            raise DataError(
                f"{self.added} holds files, but there is no catalogue that knows them: put {self.catalogue} back, or "
                "give another --state"
            )
        if self.path.is_dir():
            clear_torn(self.path, self.catalogue.name)
        catalogue = Catalogue(self.catalogue, hasher.n_bits)
        try:
            made_by = catalogue.about("model")
            if made_by not in (None, hasher.digest):
                raise DataError(
                    f"{self.path} holds codes of another model: serve it with that one, or give another --state"
                )
            catalogue.note(model=hasher.digest)
            self.added.mkdir(exist_ok=True)
            self._tidy(catalogue.added_files())
        except BaseException:
            catalogue.close()
            raise
        return catalogue

    def _tidy(self, known: set[str]) -> None:
        """Set aside what the service wrote and the catalogue does not know, as after a crash; leave all other files.

        What was set aside under another catalogue comes back with the one that knows it.
        """
        clear_torn(self.added)
        for file in list(self.set_aside.glob("*")):
            if file.name in known and is_own(file.name) and not (self.added / file.name).exists():
                file.rename(self.added / file.name)
        unknown = [file for file in self.added.iterdir() if file.name not in known]
        own = [file for file in unknown if is_own(file.name) and file.is_file() and not file.is_symlink()]
        for file in own:
            self.set_aside.mkdir(exist_ok=True)
            names = (f"{file.stem}{'-' * bool(n)}{n or ''}{file.suffix}" for n in count())
            file.rename(next(place for name in names if not (place := self.set_aside / name).exists()))
        if own:
            log.warning(
                "%s files in %s are not in the catalogue and were moved to %s", len(own), self.added, self.set_aside
            )
        if len(unknown) > len(own):
            other = next(file for file in unknown if file not in own)
            n = len(unknown) - len(own)
            log.warning("%s files in %s are not of this service and are left, such as %s", n, self.added, other.name)


def take_collection(catalogue: Catalogue, collection: Collection, hasher: Hasher) -> Path:
    """Take over a collection's images, once; return the folder that all of them lie below."""
    _, digest = collection.model()
    if digest != hasher.digest:
        raise DataError(f"{collection.path} was made by another model than the one given: index the images again")
    checksum, source = collection.codes_digest(), catalogue.about("source")
    if source is None:
        codes, items = collection.load_codes(), collection.items()
        if not items.keys() >= set(codes.ids.tolist()):
            raise DataError(f"{collection.path} has codes of images that it does not name: index the images again")
        root, paths = locate(collection, items)
        codes = codes[np.isin(codes.ids, list(paths))]
        log.info("%s images are taken over into %s", f"{len(codes):,}", catalogue.file)
        entries = (
            Entry(paths[id_], _spelled(items[id_].labels), items[id_].metadata, id_) for id_ in codes.ids.tolist()
        )
        with catalogue.changing():
            catalogue.add(entries, codes)
            catalogue.note(source=checksum, root=as_text(root))
    elif source == _FOLDER:
        raise DataError(f"{catalogue.file} is of a folder, not of an index: give --images, or another --state")
    elif source != checksum:
        raise DataError(
            f"{collection.path} was indexed again since it was served, or {catalogue.file} is of another index: give "
            "another --state, for what was added and deleted through the service belongs to the other one"
        )
    return as_path(catalogue.about("root") or "/")


@dataclass(frozen=True)
class Found:
    """An image file of a folder: its path below it, and when it was changed."""

    path: Path
    stamp: int


def check_folder(root: Path) -> None:
    """Raise if there is no such folder."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")


def compare_folder(catalogue: Catalogue, root: Path) -> list[Found]:
    """Remove what is gone from a folder, or was changed, from the catalogue; return what is new in the folder.

    What was deleted through the service does not come back, and links that lead out of the folder are passed over. The
    folder may have moved; one in which nothing is found is another one, or is not mounted.
    """
    check_folder(root)
    if catalogue.about("source") not in (None, _FOLDER):
        raise DataError(f"{catalogue.file} is of an index, not of a folder: give --index, or another --state")
    found, known = _look_through(root), catalogue.files()
    before, now = catalogue.about("folder"), as_text(Path(os.path.realpath(root)))
    if not found.keys() & known.keys() and len(known) >= (_MANY if before in (None, now) else 1):
        raise DataError(
            f"none of the {len(known):,} images that {catalogue.file} knows is in {root}: mount it, give the folder "
            f"that was served{f' ({before})' if before else ''}, or give another --state"
        )
    catalogue.note(source=_FOLDER, folder=now)
    gone = [id_ for name, (id_, stamp) in known.items() if name not in found or found[name].stamp != stamp]
    if gone:
        log.info("%s images are gone from %s, or were changed", f"{len(gone):,}", root)
        with catalogue.changing():
            for id_ in gone:
                catalogue.remove(id_, forget=False)
    here = catalogue.files().keys() | catalogue.forgotten()
    return [image for name, image in found.items() if name not in here]


def _look_through(root: Path) -> dict[str, Found]:
    """Return the image files of a folder, by path; what leads out of it, or is gone again, is left out."""
    folder, inside = look_through(root), inside_of(root)
    if folder.ignored:
        log.warning("%s: %s", root, ignored_note(folder.ignored))
    kept = [path for path in folder.paths if inside(path)]
    if len(kept) < len(folder.paths):
        log.warning("%s links lead out of %s and are passed over", f"{len(folder.paths) - len(kept):,}", root)
    found = {}
    for path in kept:
        own = path.relative_to(root)
        with suppress(OSError):
            found[str(own)] = Found(own, path.stat().st_mtime_ns)
    return found


def take_images(catalogue: Catalogue, root: Path, images: Sequence[Found], hasher: Hasher, reading: Reading) -> None:
    """Encode images of a folder and add them to the catalogue; `reading` says what unreadable ones do.

    An image's label is the first folder below the root.
    """
    with reading.under_one_bar("encoding", len(images)) as part_reading:
        for first in range(0, len(images), _PART):
            part = images[first : first + _PART]
            codes = hasher.encode([root / image.path for image in part], reading=part_reading)
            kept = [part[position] for position in codes.ids.tolist()]
            entries = (Entry(str(own.path), _spelled(own.path.parts[:-1][:1]), stamp=own.stamp) for own in kept)
            catalogue.add(entries, codes)


def _spelled(labels: Iterable[str]) -> list[str]:
    """Return labels as text that can be shown, also where they are names of folders that are no Unicode."""
    return [NO_TEXT.sub("\ufffd", label) for label in labels]
