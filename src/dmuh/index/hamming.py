"""HammingIndex: exact nearest codes by Hamming distance, in memory or memory-mapped."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import DtypeError, FormatError, InputError
from dmuh.files import load_arrays, save_arrays
from dmuh.index.bits import as_words
from dmuh.index.segment import Segment

_KIND, _VERSION = "dmuh index", 1
_MERGE = 4  # a segment is merged with the one before it unless that is this many times its size

IdsLike = NDArray[Any] | Sequence[int]


@dataclass(frozen=True, eq=False)
class Matches:
    """The k nearest codes of each query, nearest first, equal distances by id: both arrays are (queries, k)."""

    distances: NDArray[np.int32]
    ids: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """All codes within a radius of each query; those of query i stand at offsets[i]:offsets[i + 1]."""

    offsets: NDArray[np.int64]
    distances: NDArray[np.int32]
    ids: NDArray[np.int64]


class HammingIndex:
    """Exact search over binary codes; an empty index takes its width from the first codes added.

    Codes are kept in a few segments that never change. Adding makes a new one and merges it with smaller neighbours,
    so that a code is moved a logarithmic number of times. Removing marks ids; a segment half marked is made anew.

    With `tables`, a million distinct codes or more that are searched often are filed for quicker search, which takes
    three times the memory (see `dmuh.index.tables`); answers are the same.
    """

    def __init__(self, *, tables: bool = True) -> None:
        self._tables = tables
        self._n_bits: int | None = None
        self._segments: list[Segment] = []
        self._sorted_ids: NDArray[np.int64] | None = np.empty(0, np.int64)  # None: to be made again

    def __len__(self) -> int:
        return sum(segment.n_living for segment in self._segments)

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added."""
        return self._n_bits

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids in the index, ascending."""
        if self._sorted_ids is None:
            parts = [s.ids[s.living] if len(s.living) else s.ids for s in self._segments]
            self._sorted_ids = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
        return self._sorted_ids

    def add(self, codes: Codes) -> "HammingIndex":
        """Add codes; their ids must be new. Returns the index itself."""
        self._check_width(codes)
        known = codes.ids[_in_sorted(codes.ids, self.ids)]
        if len(known):
            raise InputError(f"id {known.min()} is in the index already ({len(known)} such ids): remove it first")
        self._n_bits = codes.n_bits
        if len(codes):
            self._segments.append(Segment.build(as_words(codes), codes.ids, codes.n_bits))
            while len(self._segments) > 1 and len(self._segments[-2].ids) < _MERGE * len(self._segments[-1].ids):
                self._segments[-2:] = [_merged(self._segments[-2:], codes.n_bits)]
            # stable: ids that are all but sorted, as where new ones are larger, take one pass
            self._sorted_ids = np.sort(np.concatenate([self.ids, codes.ids]), kind="stable")
        return self

    def remove(self, ids: IdsLike) -> "HammingIndex":
        """Remove codes by id; an id that is not there is an error and nothing is removed. Returns the index itself."""
        gone = as_ids(ids)
        missing = gone[~_in_sorted(gone, self.ids)]
        if len(missing):
            raise InputError(f"id {missing[0]} is not in the index ({len(missing)} such ids)")
        if len(gone):
            kept = [segment.without(gone) for segment in self._segments]
            self._segments = [
                segment if 2 * segment.n_living > len(segment.ids) else _merged([segment], segment.n_bits)
                for segment in kept
                if segment.n_living
            ]
            self._sorted_ids = self.ids[~_in_sorted(self.ids, gone)]
        return self

    def search(self, queries: Codes, k: int, *, among: IdsLike | NDArray[np.bool_] | None = None) -> Matches:
        """Return the k nearest codes of each query (all of them if there are fewer), ties by id.

        `among` leaves only some ids to be found: these ids, or a boolean mask over `ids`.
        """
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        self._check_width(queries)
        chosen = self._chosen(among)
        words = as_words(queries)
        parts = [segment.search(words, k, chosen, self._tables) for segment in self._segments]
        empty = np.empty((len(queries), 0), np.int64)
        distances = np.concatenate([empty.astype(np.int32), *(part[0] for part in parts)], axis=1)
        ids = np.concatenate([empty, *(part[1] for part in parts)], axis=1)
        if len(parts) > 1:
            order = np.lexsort((ids, distances), axis=1)[:, :k]
            distances, ids = np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)
        return Matches(distances, ids)

    def within(
        self, queries: Codes, radius: int, *, among: IdsLike | NDArray[np.bool_] | None = None
    ) -> Neighbourhoods:
        """Return every code at distance ≤ radius of each query, nearest first, ties by id; `among` as in `search`."""
        if radius < 0:
            raise InputError(f"radius must be at least 0, got {radius}")
        self._check_width(queries)
        chosen = self._chosen(among)
        words = as_words(queries)
        radius = min(radius, queries.n_bits)
        parts = [segment.within(words, radius, chosen) for segment in self._segments]
        if len(parts) == 1:
            return Neighbourhoods(*parts[0])
        row = np.concatenate(
            [np.empty(0, np.int64), *(np.repeat(np.arange(len(queries)), np.diff(p[0])) for p in parts)]
        )
        distances = np.concatenate([np.empty(0, np.int32), *(part[1] for part in parts)])
        ids = np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)])
        order = np.lexsort((ids, distances, row))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(queries)))])
        return Neighbourhoods(offsets, distances[order], ids[order])

    def save(self, path: str | Path, *, of: str = "") -> None:
        """Write the index to one file, atomically; `of` says which codes it is of."""
        arrays: dict[str, NDArray[Any]] = {}
        if self._segments:
            whole = self._segments[0]
            if len(self._segments) > 1 or len(whole.living):
                whole = _merged(self._segments, whole.n_bits)
                self._segments = [whole]
            words = whole.words.view(np.int32 if whole.words.dtype == np.uint32 else np.int64)
            arrays = {"words": words, "ids": whole.ids, "starts": whole.starts}
        save_arrays(Path(path), _KIND, _VERSION, arrays, {"n_bits": self._n_bits, "of": of})

    @classmethod
    def load(cls, path: str | Path, *, tables: bool = True, of: str | None = None) -> "HammingIndex":
        """Open an index written by `save`: checked, and memory-mapped, so that it is read from disk as it is used.

        With `of`, an index of other codes is refused.
        """
        file = load_arrays(Path(path), _KIND, _VERSION, memory_map=True)
        if of is not None and file.metadata.get("of", "") != of:
            raise FormatError(f"{path} is an index of other codes: make it anew by dmuh index")
        index = cls(tables=tables)
        n_bits: Any = file.metadata.get("n_bits")
        index._n_bits = n_bits
        if file.arrays:
            try:
                words = file.arrays["words"]
                words = words.view(np.uint32 if words.dtype == np.int32 else np.uint64)
                segment = Segment(words, file.arrays["starts"], file.arrays["ids"], np.empty(0, np.bool_), n_bits)
                segment.check()
            except (KeyError, TypeError, ValueError) as error:
                raise FormatError(f"{path} does not hold an index as this dmuh writes it: {error}") from error
            index._segments = [segment]
            index._sorted_ids = None
        return index

    def _chosen(self, among: IdsLike | NDArray[np.bool_] | None) -> NDArray[np.int64] | None:
        if among is None:
            return None
        array = np.asarray(among)
        if array.dtype != np.bool_:
            return as_ids(array)
        if array.shape != (len(self),):
            raise InputError(f"a mask must have one entry for each of the {len(self)} ids, got shape {array.shape}")
        chosen: NDArray[np.int64] = self.ids[array]
        return chosen

    def _check_width(self, codes: Codes) -> None:
        if self._n_bits is not None and codes.n_bits != self._n_bits:
            raise InputError(f"the index holds {self._n_bits}-bit codes, got {codes.n_bits}-bit ones")


def _merged(segments: Sequence[Segment], n_bits: int) -> Segment:
    parts = [segment.expanded() for segment in segments]
    words, ids = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    return Segment.build(words, ids, n_bits)


def as_ids(ids: IdsLike) -> NDArray[np.int64]:
    """Return ids as an array, each once, ascending."""
    array = np.unique(np.asarray(ids))
    if array.size and array.dtype.kind not in "iu":
        raise DtypeError(f"ids must be whole numbers, got {array.dtype}")
    return array.astype(np.int64)


def _in_sorted(values: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which values occur in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[at] == values)
