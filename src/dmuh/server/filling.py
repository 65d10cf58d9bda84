"""How a catalogue comes to its images: from a collection that was indexed before, or from a folder."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dmuh.collection import Collection, Item
from dmuh.encoder import Hasher
from dmuh.errors import DataError
from dmuh.files import saved_checksum
from dmuh.images import BadImages, find_images
from dmuh.server.catalogue import Catalogue, Entry

log = logging.getLogger(__name__)

_PART = 4096  # images that are encoded and kept together: what an interruption costs at most


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
    def lock(self) -> Path:
        """What keeps a second service out."""
        return self.path / ".lock"

    def open(self, hasher: Hasher) -> Catalogue:
        """Open the catalogue, which must hold codes of this model, and clear away files that a crash left behind."""
        catalogue = Catalogue(self.catalogue, hasher.n_bits)
        made_by = catalogue.about("model")
        if made_by is None:
            catalogue.note(model=hasher.digest)
        elif made_by != hasher.digest:
            catalogue.close()
            raise DataError(
                f"{self.path} holds codes of another model: serve it with that one, or give another --state"
            )
        self.added.mkdir(exist_ok=True)
        known = catalogue.added_files()
        for file in self.added.iterdir():
            if file.name not in known:
                file.unlink()
        return catalogue


def take_collection(catalogue: Catalogue, collection: Collection, hasher: Hasher) -> Path:
    """Take over a collection's images, once; return the folder that all of them lie below."""
    _, digest = collection.model()
    if digest != hasher.digest:
        raise DataError(f"{collection.path} was made by another model than the one given: index the images again")
    checksum, source = saved_checksum(collection.codes_file), catalogue.about("source")
    if source is None:
        codes, items = collection.load_codes(), collection.items()
        log.info("%s images are taken over into %s", f"{len(codes):,}", catalogue.file)
        root, paths = _located(items)
        entries = (
            Entry(paths[id_], _spelled(items[id_].labels), items[id_].metadata, id_) for id_ in codes.ids.tolist()
        )
        with catalogue.changing():
            catalogue.add(entries, codes)
            catalogue.note(source=checksum, root=str(root))
    elif source != checksum:
        raise DataError(
            f"{collection.path} was indexed again since it was served: move {catalogue.file} away to begin anew, which "
            "gives up what was added and deleted through the service, or give another --state"
        )
    return Path(catalogue.about("root") or "/")


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

    What was deleted through the service does not come back, and links that lead out of the folder are passed over.
    """
    check_folder(root)
    if catalogue.about("source") not in (None, "folder"):
        raise DataError(f"{catalogue.file} is of an index, not of a folder: give --index, or another --state")
    catalogue.note(source="folder")
    images, real = find_images(root), root.resolve()
    inside = [path for path in images if path.resolve().is_relative_to(real)]
    if len(inside) < len(images):
        log.warning("%s links lead out of %s and are passed over", f"{len(images) - len(inside):,}", root)
    found = {str(own): Found(own, path.stat().st_mtime_ns) for path in inside for own in [path.relative_to(root)]}
    known = catalogue.files()
    gone = [id_ for name, (id_, stamp) in known.items() if name not in found or found[name].stamp != stamp]
    if gone:
        log.info("%s images are gone from %s, or were changed", f"{len(gone):,}", root)
        with catalogue.changing():
            for id_ in gone:
                catalogue.remove(id_, forget=False)
    here = catalogue.files().keys() | catalogue.forgotten()
    return [image for name, image in found.items() if name not in here]


def take_images(
    catalogue: Catalogue,
    root: Path,
    images: Sequence[Found],
    hasher: Hasher,
    bad: BadImages,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Encode images of a folder and add them to the catalogue; those that cannot be read are left out.

    An image's label is the first folder below the root.
    """
    for first in range(0, len(images), _PART):
        part = images[first : first + _PART]
        codes = hasher.encode([root / image.path for image in part], on_bad_image="skip", bad=bad, progress=progress)
        kept = [part[position] for position in codes.ids.tolist()]
        entries = (Entry(str(own.path), _spelled(own.path.parts[:-1][:1]), stamp=own.stamp) for own in kept)
        catalogue.add(entries, codes)


def _located(items: dict[int, Item]) -> tuple[Path, dict[int, str]]:
    """Return the folder that all files lie below, links followed, and the path of each in it.

    What is not a file, such as an image of an array, keeps its name.
    """
    resolved = cache(Path.resolve)  # of folders, of which there are few
    real = {}
    for id_, item in items.items():
        path = Path(item.path)
        if path.is_absolute():
            path = resolved(path.parent) / path.name
            real[id_] = path.resolve() if path.is_symlink() else path
    root = Path(os.path.commonpath({path.parent for path in real.values()} or {"/"}))
    return root, {id_: str(real[id_].relative_to(root)) if id_ in real else item.path for id_, item in items.items()}


def _spelled(labels: Iterable[str]) -> list[str]:
    """Return labels as text that can be shown, also where they are names of folders that are no Unicode."""
    return [label.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for label in labels]
