"""What is odd about a data set and its split, found once when it is loaded and said in one summary.

Identical images have the same content, byte for byte: the same file, a copy of it, or the same pixels in memory.
A query that has a copy in the training set or in the database makes a measurement look better than it is.
"""

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dmuh.datasets import Dataset
from dmuh.errors import DataError
from dmuh.images import ImageLike, Images
from dmuh.protocols import Positions, Split

MAX_FILES = 200_000  # of more files, copies are not looked for: it would take longer than anyone waits
_GLIMPSE = 1024  # bytes from the middle, where images of one size and one camera still differ
_PIECE = 1 << 17
_PER_TASK, _WORKERS = 500, 4  # threads hide the waiting for a disk; from memory one is as quick

Key = Hashable | None  # equal for equal content as far as it was looked at; None cannot be read


@dataclass(frozen=True)
class DataSummary:
    """A data set and its split, in figures.

    labels_per_image    mean over the images that have a label
    parts               number of images that train, watch the training (validation), are queries and are searched
    unlabelled          images without a label
    missing             files that do not exist
    listed_twice        images whose path stands in the list before already
    identical           images that have another path, or none, but the content of an earlier image
    leaked_to_database  queries with an identical copy in the database
    leaked_to_training  queries with an identical copy in the training or the validation part
    without_relevant    queries that share no class with any image of the database
    first               the first image that each of these counts, by the name of the count
    looked_for_copies   whether the files were looked at; if not, there is no count of missing and identical ones
    notes               what the reader noticed
    """

    protocol: str
    images: int
    classes: int
    labels_per_image: float
    parts: dict[str, int]
    unlabelled: int
    missing: int
    listed_twice: int
    identical: int
    leaked_to_database: int
    leaked_to_training: int
    without_relevant: int
    first: dict[str, str]
    looked_for_copies: bool
    notes: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """What is wrong, one sentence each."""
        leak = "have an identical copy in the {}, a leak that makes the result look better than it is"
        said = {
            "unlabelled": "images without a label take no part",
            "missing": "image files do not exist",
            "listed_twice": "images are listed twice",
            "identical": "images are identical to an earlier one",
            "leaked_to_database": f"queries {leak.format('database')}",
            "leaked_to_training": f"queries {leak.format('training part')}",
            "without_relevant": "queries have no relevant image in the database and count as 0",
        }
        found = [f"{getattr(self, name):,} {text}; the first is {self.first[name]}"
                 for name, text in said.items() if getattr(self, name)]  # fmt: skip
        if not self.looked_for_copies:
            found.append(f"identical images were not looked for, as there are more than {MAX_FILES:,} files")
        return [*self.notes, *found]

    def lines(self) -> list[str]:
        """Return the summary as lines: the parts, then a sentence for each problem, or one that there is none."""
        parts = ", ".join(f"{name} {n:,}" for name, n in self.parts.items())
        about = f"{self.images:,} images, {self.classes:,} classes, {self.labels_per_image:.2f} labels per image"
        return [
            f"{about}, protocol {self.protocol}: {parts}",
            *(self.problems or ["no image is missing, unlabelled, twice or in two parts"]),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self) | {"notes": list(self.notes)}


def summarise(dataset: Dataset, split: Split, protocol_name: str) -> DataSummary:
    """Look at the images, the labels and the split; a query that also trains or is searched is an error."""
    training = np.union1d(split.train, split.validation)
    _refuse_overlap(dataset, split.query, split.database, "in the database")
    _refuse_overlap(dataset, split.query, training, "among the training images")
    per_image = dataset.labels.sum(axis=1, dtype=np.int64)
    searched = dataset.labels[split.database].any(axis=0)
    relevant = (dataset.labels[split.query] & searched).any(axis=1)
    look = isinstance(dataset.images, np.ndarray) or len(dataset) <= MAX_FILES
    groups, missing = _look(dataset.images) if look else ([], [])
    twice, identical = _repeated(dataset.images, groups)
    found: dict[str, Sequence[int] | Positions] = {
        "unlabelled": np.flatnonzero(per_image == 0) if dataset.classes else [],  # where nothing has labels, all train
        "missing": missing,
        "listed_twice": twice,
        "identical": identical,
        "leaked_to_database": _leaked(groups, split.query, split.database),
        "leaked_to_training": _leaked(groups, split.query, training),
        "without_relevant": split.query[~relevant],
    }
    return DataSummary(
        protocol=protocol_name,
        images=len(dataset),
        classes=len(dataset.classes),
        labels_per_image=float(per_image[per_image > 0].mean()) if per_image.any() else 0.0,
        parts={name: len(positions) for name, positions in vars(split).items()},
        first={name: dataset.path(int(positions[0])) for name, positions in found.items() if len(positions)},
        looked_for_copies=look,
        notes=dataset.notes,
        **{name: len(positions) for name, positions in found.items()},
    )


def find_duplicates(images: Images) -> list[list[int]]:
    """Return the positions of images with identical content, in groups of two or more; missing files are left out."""
    return _look(images)[0]


def _look(images: Images) -> tuple[list[list[int]], list[int]]:
    """Return the groups of identical images, and the positions of the files that do not exist.

    Files are told apart by their size, then by a glimpse of their middle, and only those left are read whole.
    """
    everything = range(len(images))
    if isinstance(images, np.ndarray):
        return _groups(everything, map(_content, images)), []
    with ThreadPoolExecutor(_WORKERS) as pool:

        def read(positions: Sequence[int], key: Callable[[int], Key]) -> list[Key]:
            tasks = [positions[n : n + _PER_TASK] for n in range(0, len(positions), _PER_TASK)]
            return [found for keys in pool.map(lambda task: list(map(key, task)), tasks) for found in keys]

        sizes = read(everything, lambda n: _size(images[n]))
        groups = _groups(everything, sizes)
        for key in (lambda n: _glimpse(images[n], sizes[n]), lambda n: _content(images[n])):
            left = [n for group in groups for n in group]
            numbers = [number for number, group in enumerate(groups) for _ in group]
            keys = read(left, key)
            groups = _groups(
                left, [None if key is None else (number, key) for number, key in zip(numbers, keys, strict=True)]
            )
    return sorted(groups), [n for n, size in enumerate(sizes) if size is None]


def _groups(positions: Iterable[int], keys: Iterable[Key]) -> list[list[int]]:
    """Return the positions that share a key with another, in the order of the first of each."""
    found = defaultdict(list)
    for position, key in zip(positions, keys, strict=True):
        if key is not None:
            found[key].append(position)
    return [group for group in found.values() if len(group) > 1]


def _size(image: ImageLike) -> Key:
    if isinstance(image, bytes):
        return len(image)
    if not isinstance(image, str | Path):
        return ()
    try:
        about = os.stat(image)  # noqa: PTH116 (quicker than by Path)
    except OSError:
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def _glimpse(image: ImageLike, size: Any) -> Key:
    if not isinstance(image, str | Path | bytes):
        return ()
    middle = max(size - _GLIMPSE, 0) // 2
    if isinstance(image, bytes):
        return image[middle : middle + _GLIMPSE]
    try:
        handle = os.open(image, os.O_RDONLY)
        try:
            return os.pread(handle, _GLIMPSE, middle)
        finally:
            os.close(handle)
    except OSError:
        return None


def _content(image: ImageLike) -> Key:
    if isinstance(image, bytes):
        return hashlib.sha256(image).digest()
    if isinstance(image, np.ndarray):
        return image.shape, hashlib.sha256(np.ascontiguousarray(image).data).digest()
    if isinstance(image, Image.Image):
        try:
            pixels = image.tobytes()
        except Exception:  # decoders raise nearly anything on broken files
            return None
        about = (image.mode, image.size, image.getpalette(), image.info.get("transparency"))
        return repr(about), hashlib.sha256(pixels).digest()
    digest = hashlib.sha256()
    try:
        with open(image, "rb", buffering=0) as file:  # noqa: PTH123 (quicker than by Path)
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError:
        return None
    return digest.digest()


def _repeated(images: Images, groups: list[list[int]]) -> tuple[list[int], list[int]]:
    """Return the positions whose path stands in the list before, and those of all other copies of an earlier image."""
    twice: set[int] = set()
    if not isinstance(images, np.ndarray):
        paths: set[str] = set()
        for position, image in enumerate(images):
            if isinstance(image, str | Path):
                if (path := str(image)) in paths:
                    twice.add(position)
                paths.add(path)
    return sorted(twice), sorted(n for group in groups for n in group[1:] if n not in twice)


def _leaked(groups: list[list[int]], query: Positions, part: Positions) -> list[int]:
    """Return the queries that are in a group with an image of the part."""
    queries, others = set(query.tolist()), set(part.tolist())
    return sorted(n for group in groups if not others.isdisjoint(group) for n in queries.intersection(group))


def _refuse_overlap(dataset: Dataset, query: Positions, part: Positions, where: str) -> None:
    both = np.intersect1d(query, part)
    if len(both):
        raise DataError(f"{len(both):,} query images are {where}, the first is {dataset.path(int(both[0]))}")
