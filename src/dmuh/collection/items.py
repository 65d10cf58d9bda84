"""Item: one image of a collection, and where its images came from."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Catalogue, Entry, ImageRow
from dmuh.catalogue.paths import displayed
from dmuh.codes import Codes
from dmuh.collection.paths import Places
from dmuh.datasets import Dataset


@dataclass(frozen=True)
class Item:
    """One image of a collection; its uncertainty is that of `Codes.image_uncertainty`."""

    id: int
    path: str
    labels: list[str]
    uncertainty: float | None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where images of a collection came from: the files and folders that were named, and how they were read."""

    images: Sequence[str]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, images: Iterable[Path], options: Mapping[str, Any]) -> "Source":
        """Return the source of files and folders, by their paths from the root on."""
        return cls([str(path.absolute()) for path in images], options)


def items_of(codes: Codes, dataset: Dataset, positions: Sequence[int]) -> list[Item]:
    """Return what is known of images by their codes and by the data set that has them at these positions."""
    unsure = codes.image_uncertainty
    return [
        Item(
            id=id_,
            path=dataset.whole_path(position),
            labels=dataset.label_names(position),
            uncertainty=None if unsure is None else round(float(unsure[row]), 6),
            metadata={column: values[position] for column, values in dataset.metadata.items()},
        )
        for row, (id_, position) in enumerate(zip(codes.ids.tolist(), positions, strict=True))
    ]


def entry_of(item: Item, places: Places, stamp: int | None = None) -> Entry:
    """Return what a catalogue stores of an item, without its id."""
    metadata = {displayed(column): displayed(value) for column, value in item.metadata.items()} if item.metadata else {}
    labels = [displayed(label) for label in item.labels]
    return Entry(places.stored(item.path), labels, metadata, stamp=stamp, uncertainty=item.uncertainty)


def item_of(row: ImageRow, places: Places) -> Item:
    """Return the item of a row."""
    path = places.whole(row.path, added=bool(row.added))
    return Item(row.id, path, json.loads(row.labels), row.uncertainty, json.loads(row.metadata))


def stamps_of(files: NDArray[np.int64]) -> list[int | None]:
    """Return one number for each size and time of change (n, 2), which is another one when a file was changed.

    None for images without a file, which have zeros.
    """
    return [_stamp(size, time) if size or time else None for size, time in files.tolist()]


def _stamp(size: int, time: int) -> int:
    digest = hashlib.blake2b(f"{size} {time}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def read_items(catalogue: Catalogue, folder: Path, ids: Iterable[int] | None = None) -> dict[int, Item]:
    """Return items by id, in ascending order: those with these ids, whose rows alone are read, or all."""
    places = Places.of(catalogue, folder)
    return {row.id: item_of(row, places) for row in catalogue.images(ids)}
