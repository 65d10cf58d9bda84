"""An index that follows its images: what was added, changed and removed since is taken up, and nothing else is encoded.

The catalogue of an index has where its images came from, and of each a number that changes with its file. Images that
stay keep their id; those that are new or were changed get one that no image had before. Images are encoded in parts,
each of which is on the disk before the next: whoever is killed has lost one part, and the same command goes on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dmuh.catalogue import Catalogue
from dmuh.catalogue.paths import displayed
from dmuh.codes import Codes
from dmuh.collection import Collection, Source, items_of
from dmuh.collection.folder import sources_of
from dmuh.collection.items import entry_of, stamps_of
from dmuh.collection.paths import Places, note_elsewhere
from dmuh.datasets import Dataset
from dmuh.encoder.adding import PART
from dmuh.encoder.hasher import Hasher
from dmuh.errors import DataError
from dmuh.images import Reading


@dataclass(frozen=True)
class Synced:
    """How many images of an index are new, were changed, and are gone."""

    added: int
    changed: int
    removed: int


@dataclass(frozen=True)
class _Found:
    """An image that a data set has: where, and its path and stamp as a catalogue has them."""

    data: Dataset
    position: int
    path: str
    stamp: int | None


_Known = dict[str, tuple[int, int | None]]  # id and stamp of the images that a catalogue has, by path


def sources_to_follow(collection: Collection) -> list[Source]:
    """Return where the images of an index came from; one that does not know it is refused."""
    sources = collection.sources()
    if not sources:
        raise DataError(
            f"{collection.path} does not say when its images were changed, as indexes of shards and of earlier "
            "versions: make it anew by dmuh index RUN IMAGES --out INDEX --replace"
        )
    return sources


def sync_index(collection: Collection, hasher: Hasher, data: Sequence[Dataset], reading: Reading) -> Synced:
    """Bring an index up to date with the images that it was made of, as `data` has them now, one for each source."""
    with collection.changing() as catalogue:
        found = _found(data, Places.of(catalogue, collection.path))
        forgotten, known = catalogue.forgotten(), catalogue.files()
        present = {path: image for path, image in found.items() if path not in forgotten}
        # an image without a stamp was not found by looking for files, unless none was
        follows = catalogue.about("root") or ""
        gone = [
            id_ for path, (id_, stamp) in known.items() if path not in present and (stamp is not None or not follows)
        ]
        stay = _staying(present, known)
        _describe(catalogue, {known[path][0]: present[path] for path in stay})
        fresh = [image for path, image in present.items() if path not in stay]
        added, changed, lost = _take_up(catalogue, collection, fresh, known, hasher, reading, [])
        with catalogue.transaction():
            for id_ in gone:
                catalogue.remove(id_, forget=False)
        return Synced(added, changed, len(gone) + lost)


def add_to_index(collection: Collection, hasher: Hasher, data: Dataset, source: Source, reading: Reading) -> Synced:
    """Add images to an index, from a source that it follows from then on; those that it has already stay."""
    with collection.changing() as catalogue:
        found = _found([data], Places.of(catalogue, collection.path))
        sources = sources_of(catalogue)
        new, known = sources if source in sources else [*sources, source], catalogue.files()
        stay = _staying(found, known)
        fresh = [image for path, image in found.items() if path not in stay]
        return Synced(*_take_up(catalogue, collection, fresh, known, hasher, reading, new))


def _found(data: Sequence[Dataset], places: Places) -> dict[str, _Found]:
    """Return the images of all data sets by path; of those that several have, the first."""
    found: dict[str, _Found] = {}
    for part in data:
        for position, stamp in enumerate(stamps_of(part.stamps())):
            path = places.stored(part.whole_path(position))
            found.setdefault(path, _Found(part, position, path, stamp))
    return found


def _staying(found: dict[str, _Found], known: _Known) -> set[str]:
    """Return the paths of images that are known as they are."""
    return {path for path, image in found.items() if path in known and known[path][1] == image.stamp}


def _take_up(
    catalogue: Catalogue,
    collection: Collection,
    fresh: Sequence[_Found],
    known: _Known,
    hasher: Hasher,
    reading: Reading,
    sources: list[Source],
) -> tuple[int, int, int]:
    """Encode what is new or was changed; where images came from is noted with the first of them.

    Returns how many are new, were changed, and cannot be read any more.
    """
    added = changed = lost = 0
    left, sure = iter(fresh), catalogue.sure or 0
    with reading.under_one_bar("encoding", len(fresh)) as part_reading:
        while True:
            part = list(islice(left, PART))
            encoded = [_encode(hasher, images, part_reading, sure) for images in _by_data(part)]
            readable = [image for images, _ in encoded for image in images]
            with catalogue.transaction():
                if sources:
                    catalogue.note(sources=json.dumps([vars(source) for source in sources]))
                before = {image.path for image in part if image.path in known}
                for path in before:
                    catalogue.remove(known[path][0], forget=False)
                for images, codes in encoded:
                    _add(catalogue, collection, images, codes)
                catalogue.remember(image.path for image in readable)
            again = sum(image.path in before for image in readable)
            added, changed, lost = added + len(readable) - again, changed + again, lost + len(before) - again
            if len(part) < PART:
                return added, changed, lost


def _by_data(part: Sequence[_Found]) -> list[list[_Found]]:
    """Return the images in lists of one data set each."""
    lists: dict[int, list[_Found]] = {}
    for image in part:
        lists.setdefault(id(image.data), []).append(image)
    return list(lists.values())


def _encode(hasher: Hasher, images: list[_Found], reading: Reading, sure: int) -> tuple[list[_Found], Codes]:
    """Return those of the images that can be read, and their codes."""
    positions = np.array([image.position for image in images], np.int64)
    codes = hasher.encode(images[0].data.take(positions), reading=reading, sure=sure)
    return [images[row] for row in codes.ids.tolist()], codes


def _add(catalogue: Catalogue, collection: Collection, images: list[_Found], codes: Codes) -> None:
    if not images:
        return
    places = Places.of(catalogue, collection.path)
    items = items_of(codes, images[0].data, [image.position for image in images])
    entries = [entry_of(item, places, image.stamp) for item, image in zip(items, images, strict=True)]
    note_elsewhere(catalogue, (entry.path for entry in entries))
    catalogue.add(entries, codes.stored())


def _describe(catalogue: Catalogue, images: dict[int, _Found]) -> None:
    """Give images that stay the labels and metadata that they have now, where these changed."""
    new: dict[int, tuple[list[str], dict[str, str]]] = {}
    for row in catalogue.images(images):
        image = images[row.id]
        labels = [displayed(label) for label in image.data.label_names(image.position)]
        metadata = {
            displayed(column): displayed(values[image.position]) for column, values in image.data.metadata.items()
        }
        if (labels, metadata) != (json.loads(row.labels), json.loads(row.metadata)):
            new[row.id] = labels, metadata
    with catalogue.transaction():
        for id_, (labels, metadata) in new.items():
            catalogue.describe(id_, labels, metadata)
