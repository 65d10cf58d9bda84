"""An index that follows its images: what was added, changed and removed since is taken up, and nothing else is encoded.

`dmuh index` writes source.safetensors beside the codes: where the images came from, and size and time of change of each
file. Images that stay keep their id; those that are new or were changed get one that no image had before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.collection import Collection, items_of
from dmuh.datasets import Dataset
from dmuh.encoder.hasher import Hasher
from dmuh.errors import DataError
from dmuh.files import load_arrays, save_arrays
from dmuh.images import Reading

_KIND, _VERSION = "dmuh source of an index", 1


@dataclass(frozen=True)
class IndexSource:
    """Where the images of an index came from.

    images   the files and folders that were named, from the root on
    options  how they were read, by the names of settings
    files    int64 (n, 3) id, size and time of change of each image's file
    earlier  what told the codes of this index from others before it was brought up to date, the latest last
    next_id  the smallest id that no image had before
    """

    images: Sequence[str]
    options: Mapping[str, Any]
    files: NDArray[np.int64]
    earlier: Sequence[str] = ()
    next_id: int = 0

    @classmethod
    def of(
        cls, codes: Codes, stamps: NDArray[np.int64], images: Sequence[Path], options: Mapping[str, Any]
    ) -> "IndexSource":
        """Return the source of fresh codes, whose ids are positions of images with these stamps (N, 2)."""
        files = np.column_stack([codes.ids, stamps[codes.ids]])
        return cls([str(path.absolute()) for path in images], options, files, next_id=len(stamps))

    def save(self, collection: Collection) -> None:
        """Write it beside the codes."""
        about = {
            "codes": collection.codes_digest(),
            "images": list(self.images),
            "options": dict(self.options),
            "earlier": list(self.earlier),
            "next_id": self.next_id,
        }
        save_arrays(collection.source_file, _KIND, _VERSION, {"files": self.files}, about)

    @classmethod
    def load(cls, collection: Collection) -> "IndexSource":
        """Read it; an index without one, or with that of another, is refused."""
        codes = collection.codes_digest()
        known = load_arrays(collection.source_file, _KIND, _VERSION) if collection.source_file.is_file() else None
        if known is None or known.metadata["codes"] != codes:
            raise DataError(
                f"{collection.path} does not say when its images were changed, as indexes of shards and of earlier "
                "versions: make it anew by dmuh index RUN IMAGES --out INDEX --replace"
            )
        about = known.metadata
        return cls(about["images"], about["options"], known.arrays["files"], about["earlier"], about["next_id"])


@dataclass(frozen=True)
class Synced:
    """How many images of an index are new, were changed, and are gone."""

    added: int
    changed: int
    removed: int

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def sync_index(collection: Collection, hasher: Hasher, data: Dataset, reading: Reading) -> Synced:
    """Bring an index up to date with the images that it was made of, as `data` has them now."""
    source, before = IndexSource.load(collection), collection.load_codes()
    items = collection.items()
    stamps = data.stamps()
    known = {id_: (size, time) for id_, size, time in source.files.tolist()}
    ids = {item.path: id_ for id_, item in items.items()}
    stays: dict[int, int] = {}  # id: position
    fresh: list[int] = []
    for position in range(len(data)):
        id_ = ids.get(data.whole_path(position))
        if id_ is not None and known.get(id_) == tuple(stamps[position].tolist()):
            stays[id_] = position
        else:
            fresh.append(position)
    kept = before[np.isin(before.ids, list(stays))]
    codes = hasher.encode(data.take(np.array(fresh, np.int64)), reading=reading, sure=before.sure)
    positions = [fresh[row] for row in codes.ids.tolist()]
    codes = codes.with_ids(np.arange(source.next_id, source.next_id + len(codes)))
    old = [stays[id_] for id_ in kept.ids.tolist()]
    unsure = {id_: items[id_].uncertainty for id_ in kept.ids.tolist()}
    listed = [replace(item, uncertainty=unsure[item.id]) for item in items_of(kept, data, old)]
    listed += items_of(codes, data, positions)
    new_paths = {data.whole_path(position) for position in positions}
    changed = len(new_paths & ids.keys())
    synced = Synced(len(positions) - changed, changed, len(items) - len(kept) - changed)
    files = np.column_stack([np.concatenate([kept.ids, codes.ids]), stamps[[*old, *positions]]])
    if synced or listed != list(items.values()):
        earlier = [*source.earlier, collection.codes_digest()]
        collection.write_items(Codes.concatenated([kept.stored(), codes.stored()]), listed, *collection.model())
        collection.build_index()
        replace(source, files=files, earlier=earlier, next_id=source.next_id + len(codes)).save(collection)
    return synced
