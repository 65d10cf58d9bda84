"""HammingIndex: exact nearest codes by Hamming or soft distance, in memory or memory-mapped."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import FormatError, InputError
from dmuh.files import load_arrays, save_arrays
from dmuh.index import soft_search
from dmuh.index.base import (
    Among,
    Ids,
    IdsLike,
    Matches,
    Neighbourhoods,
    as_ids,
    check_new,
    check_present,
    check_radius,
    check_width,
    check_worth,
    chosen_ids,
)
from dmuh.index.bits import as_words
from dmuh.index.segment import Segment
from dmuh.index.shuffle import shuffled, turns, unshuffled
from dmuh.index.soft import Ranking, choose_ranking, reach, shown
from dmuh.index.stored import from_arrays, to_arrays
from dmuh.index.weighing import SoftQueries, level_rows

_KIND, _VERSION = "dmuh index", 4
_MERGE = 4  # a segment is merged with the one before it unless that is this many times its size


class HammingIndex:
    """Exact search over binary codes; an empty index takes its width from the first codes added.

    A search ranks by Hamming distance, or softly: by the number of bits that are expected to differ, given how sure the
    query's bits are, and the codes' where they have levels of sureness (see `dmuh.index.soft`). What the levels are
    worth is that of the first codes added. Equal distances are in the order of a shuffle of ids, which each
    query begins elsewhere (see `dmuh.index.shuffle`).

    Codes are stored in a few segments that never change. Adding makes a new one and merges it with smaller neighbours,
    so that a code is moved a logarithmic number of times. Removing marks ids; a segment half marked is made anew.

    Many codes that lie in clusters, as learned ones do, stand in cells, so that a search compares few of them (see
    `dmuh.index.cells`): at once where that is much work for numpy, else once they were searched often.

    >>> codes = dmuh.Codes.from_outputs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]], ids=[10, 20, 30])
    >>> index = dmuh.HammingIndex().add(codes)
    >>> index
    HammingIndex(3 codes of 4 bits)
    >>> matches = index.search(codes[:1], k=2)
    >>> matches.ids, matches.distances
    (array([[10, 20]]), array([[0, 1]], dtype=int32))
    """

    def __init__(self) -> None:
        self._n_bits: int | None = None
        self._worth: NDArray[np.float32] | None = None
        self._segments: list[Segment] = []
        self._sorted_ids: Ids | None = np.empty(0, np.int64)  # None: to be made again

    def __len__(self) -> int:
        return sum(segment.n_living for segment in self._segments)

    def __repr__(self) -> str:
        return f"HammingIndex({len(self):,} codes{'' if self._n_bits is None else f' of {self._n_bits} bits'})"

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added.

        >>> dmuh.HammingIndex().add(dmuh.Codes.from_outputs(np.ones((3, 12)))).n_bits
        12
        """
        return self._n_bits

    @property
    def ids(self) -> Ids:
        """The ids in the index, ascending.

        >>> dmuh.HammingIndex().add(dmuh.Codes.from_outputs(np.ones((3, 12)), ids=[7, 9, 8])).ids
        array([7, 8, 9])
        """
        if self._sorted_ids is None:
            parts = [segment.living_keys for segment in self._segments]
            self._sorted_ids = np.sort(unshuffled(np.concatenate([np.empty(0, np.int64), *parts])))
        return self._sorted_ids

    def add(self, codes: Codes) -> "HammingIndex":
        """Add codes; their ids must be new, and their levels worth the same. Returns the index itself.

        >>> index = dmuh.HammingIndex().add(dmuh.Codes.from_outputs(np.ones((3, 12))))
        >>> index.add(dmuh.Codes.from_outputs(np.ones((2, 12)), ids=[3, 4]))
        HammingIndex(5 codes of 12 bits)
        """
        check_width(self._n_bits, codes)
        if self._n_bits is not None:
            check_worth(self._worth, codes)
        check_new(codes.ids[_in_sorted(codes.ids, self.ids)])
        self._n_bits, self._worth = codes.n_bits, codes.worth
        if len(codes):
            self._segments = self._quickest()
            self._segments.append(Segment.build(as_words(codes), shuffled(codes.ids), level_rows(codes), codes.n_bits))
            while len(self._segments) > 1 and len(self._segments[-2].keys) < _MERGE * len(self._segments[-1].keys):
                self._segments[-2:] = [_merged(self._segments[-2:], codes.n_bits)]
            # stable: ids that are all but sorted, as where new ones are larger, take one pass
            self._sorted_ids = np.sort(np.concatenate([self.ids, codes.ids]), kind="stable")
        return self

    def remove(self, ids: IdsLike) -> "HammingIndex":
        """Remove codes by id; an id that is not there is an error and nothing is removed. Returns the index itself.

        >>> dmuh.HammingIndex().add(dmuh.Codes.from_outputs(np.ones((3, 12)))).remove([1]).ids
        array([0, 2])
        """
        gone = as_ids(ids)
        check_present(gone[~_in_sorted(gone, self.ids)])
        if len(gone):
            keys = shuffled(gone)
            smaller = [segment.without(keys) for segment in self._quickest()]
            self._segments = [
                segment if 2 * segment.n_living > len(segment.keys) else _merged([segment], segment.n_bits)
                for segment in smaller
                if segment.n_living
            ]
            self._sorted_ids = self.ids[~_in_sorted(self.ids, gone)]
        return self

    def search(self, queries: Codes, k: int, *, among: Among | None = None, ranking: Ranking | None = None) -> Matches:
        """Return the k nearest codes of each query (all of them if there are fewer).

        among    leaves only some ids to be found: these ids, or a boolean mask over `ids`
        ranking  hamming, or soft: by the expected number of differing bits; by default soft where it is known how sure
                 the queries' bits are

        >>> codes = dmuh.Codes.from_outputs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
        >>> index = dmuh.HammingIndex().add(codes)
        >>> index.search(codes[:1], k=2).ids
        array([[0, 1]])
        >>> index.search(codes[:1], k=2, among=[1, 2]).ids
        array([[1, 2]])
        >>> unsure = dmuh.Codes.from_outputs([[1, 1, 1, 1]], uncertainty=[[0.0, 0.0, 0.0, 0.4]])
        >>> index.search(unsure, k=2).distances.round(1)
        array([[0.4, 0.6]], dtype=float32)
        """
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        check_width(self._n_bits, queries)
        chosen = self._chosen_keys(among)
        soft = choose_ranking(ranking, queries) == "soft"
        parts: list[tuple[NDArray[np.int32], Ids]]
        if soft:
            asked = SoftQueries.of(queries, self._worth)
            turned_by = asked.turns
            parts = [soft_search.nearest(segment, asked, k, chosen) for segment in self._quickest()]
        else:
            words, turned_by = as_words(queries), turns(queries, "hamming")
            parts = [segment.search(words, turned_by, k, chosen) for segment in self._quickest()]
        empty = np.empty((len(queries), 0), np.int64)
        distances = np.concatenate([empty.astype(np.int32), *(part[0] for part in parts)], axis=1)
        keys = np.concatenate([empty, *(part[1] for part in parts)], axis=1)
        if len(parts) > 1:
            order = np.lexsort((keys, distances), axis=1)[:, :k]
            distances, keys = np.take_along_axis(distances, order, axis=1), np.take_along_axis(keys, order, axis=1)
        return Matches(shown(distances) if soft else distances, unshuffled(keys + turned_by[:, None]))

    def within(
        self, queries: Codes, radius: float, *, among: Among | None = None, ranking: Ranking | None = "hamming"
    ) -> Neighbourhoods:
        """Return every code at distance ≤ radius of each query, nearest first; `among` as in `search`.

        By soft ranking the radius is an expected number of differing bits.

        >>> codes = dmuh.Codes.from_outputs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
        >>> near = dmuh.HammingIndex().add(codes).within(codes, radius=1)
        >>> near.offsets, near.ids
        (array([0, 2, 4, 5]), array([0, 1, 1, 0, 2]))
        """
        check_radius(radius)
        check_width(self._n_bits, queries)
        chosen = self._chosen_keys(among)
        soft = choose_ranking(ranking, queries) == "soft"
        if soft:
            asked, units = SoftQueries.of(queries, self._worth), reach(radius, queries.n_bits)
            turned_by = asked.turns
            parts = [soft_search.within(segment, asked, units, chosen) for segment in self._quickest()]
        else:
            words, whole = as_words(queries), math.floor(min(radius, queries.n_bits))
            turned_by = turns(queries, "hamming")
            parts = [segment.within(words, turned_by, whole, chosen) for segment in self._quickest()]
        offsets, distances, keys = parts[0] if len(parts) == 1 else _together(parts, len(queries))
        keys = keys + np.repeat(turned_by, np.diff(offsets))
        return Neighbourhoods(offsets, shown(distances) if soft else distances, unshuffled(keys))

    def _quickest(self) -> list[Segment]:
        """Return the segments as they are searched quickest; what changes the index keeps them so."""
        return [segment.quickest() for segment in self._segments]

    def _chosen_keys(self, among: Among | None) -> Ids | None:
        chosen = chosen_ids(among, self)
        return None if chosen is None else shuffled(chosen)

    def save(self, path: str | Path, *, of: str = "") -> None:
        """Write the index to one file, atomically; `of` says which codes it is of.

        >>> index = dmuh.HammingIndex().add(dmuh.Codes.from_outputs(np.ones((3, 12))))
        >>> index.save(folder / "index.safetensors")
        >>> dmuh.HammingIndex.load(folder / "index.safetensors")
        HammingIndex(3 codes of 12 bits)
        """
        self._segments = self._quickest()
        if self._segments and (len(self._segments) > 1 or len(self._segments[0].living)):
            self._segments = [_merged(self._segments, self._segments[0].n_bits)]
        arrays = to_arrays(self._segments[0] if self._segments else None, self._worth)
        save_arrays(Path(path), _KIND, _VERSION, arrays, {"n_bits": self._n_bits, "of": of})

    @classmethod
    def load(cls, path: str | Path, *, of: str | None = None) -> "HammingIndex":
        """Open an index written by `save`: checked, and memory-mapped, so that it is read from disk as it is used.

        With `of`, an index of other codes is refused. Codes of version 1, and those with levels of versions 2 and 3,
        are put in the order of this version, in memory.

        >>> dmuh.HammingIndex.load(index_folder / "index.safetensors")
        HammingIndex(20 codes of 20 bits)
        """
        file = load_arrays(Path(path), _KIND, _VERSION, memory_map=True, older=(1, 2, 3))
        if of is not None and file.metadata.get("of", "") != of:
            raise FormatError(f"{path} is an index of other codes: make it anew by dmuh index")
        index = cls()
        n_bits: Any = file.metadata.get("n_bits")
        index._n_bits = n_bits
        try:
            segment, index._worth = from_arrays(file.arrays, n_bits, file.version)
        except (KeyError, TypeError, ValueError, IndexError, InputError) as error:
            raise FormatError(f"{path} does not hold an index as this dmuh writes it: {error}") from error
        if segment is not None:
            index._segments, index._sorted_ids = [segment], None
        return index


def _merged(segments: Sequence[Segment], n_bits: int) -> Segment:
    parts = [segment.expanded() for segment in segments]
    words, keys, levels = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    return Segment.build(words, keys, levels, n_bits)


def _together(
    parts: Sequence[tuple[Ids, NDArray[np.int32], Ids]], n_queries: int
) -> tuple[Ids, NDArray[np.int32], Ids]:
    """Return offsets, distances and keys of all segments' neighbourhoods as those of one."""
    row = np.concatenate([np.empty(0, np.int64), *(np.repeat(np.arange(n_queries), np.diff(p[0])) for p in parts)])
    distances = np.concatenate([np.empty(0, np.int32), *(part[1] for part in parts)])
    keys = np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)])
    order = np.lexsort((keys, distances, row))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_queries))])
    return offsets, distances[order], keys[order]


def _in_sorted(values: Ids, ascending: Ids) -> NDArray[np.bool_]:
    """Return which values occur in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[at] == values)
