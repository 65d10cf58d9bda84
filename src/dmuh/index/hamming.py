"""HammingIndex: exact nearest codes by Hamming distance, in memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import DtypeError, InputError
from dmuh.files import load_arrays, save_arrays

_KIND, _VERSION = "dmuh index", 1
_BLOCK = 1 << 24  # distances held at once


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
    """Exact search over binary codes; an empty index takes its width from the first codes added."""

    def __init__(self) -> None:
        self._n_bits: int | None = None
        self._words: NDArray[np.uint64] = np.empty((0, 0), np.uint64)  # (n, ceil(n_bits / 64)), rows ordered by id
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added."""
        return self._n_bits

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids in the index, ascending."""
        return self._ids

    def add(self, codes: Codes) -> "HammingIndex":
        """Add codes; their ids must be new. Returns the index itself."""
        self._check_width(codes)
        known = np.intersect1d(self._ids, codes.ids)
        if len(known):
            raise InputError(f"id {known[0]} is in the index already ({len(known)} such ids): remove it first")
        words = as_words(codes)
        ids = np.concatenate([self._ids, codes.ids])
        order = np.argsort(ids, kind="stable")
        self._words = np.concatenate([self._words.reshape(-1, words.shape[1]), words])[order]
        self._ids = ids[order]
        self._n_bits = codes.n_bits
        return self

    def remove(self, ids: NDArray[np.int64] | list[int]) -> "HammingIndex":
        """Remove codes by id; an id that is not there is an error and nothing is removed. Returns the index itself."""
        gone = np.unique(np.asarray(ids))
        if gone.size and gone.dtype.kind not in "iu":
            raise DtypeError(f"ids must be whole numbers, got {gone.dtype}")
        missing = np.setdiff1d(gone, self._ids)
        if len(missing):
            raise InputError(f"id {missing[0]} is not in the index ({len(missing)} such ids)")
        keep = ~np.isin(self._ids, gone)
        self._words, self._ids = self._words[keep], self._ids[keep]
        return self

    def search(self, queries: Codes, k: int) -> Matches:
        """Return the k nearest codes of each query (all of them if there are fewer), ties by id."""
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        self._check_width(queries)
        k = min(k, len(self))
        distances = np.empty((len(queries), k), np.int32)
        ids = np.empty((len(queries), k), np.int64)
        if k == 0:
            return Matches(distances, ids)
        words = as_words(queries)
        step = max(1, _BLOCK // len(self))
        for begin in range(0, len(queries), step):
            rows = slice(begin, begin + step)
            block = hamming(words[rows], self._words)
            # rows are ordered by id, so (distance, row) orders by (distance, id), and the pair fits one integer
            keys = block.astype(np.int64) * len(self) + np.arange(len(self))
            nearest = np.sort(np.partition(keys, k - 1, axis=1)[:, :k], axis=1)
            distances[rows], position = np.divmod(nearest, len(self))
            ids[rows] = self._ids[position]
        return Matches(distances, ids)

    def within(self, queries: Codes, radius: int) -> Neighbourhoods:
        """Return every code at distance ≤ radius of each query, nearest first, ties by id."""
        if radius < 0:
            raise InputError(f"radius must be at least 0, got {radius}")
        self._check_width(queries)
        words = as_words(queries)
        counts: list[int] = [0]
        distances, ids = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for word in words:
            near = hamming(word[None], self._words)[0] if len(self) else np.empty(0, np.int32)
            hits = np.flatnonzero(near <= radius)
            hits = hits[np.argsort(near[hits], kind="stable")]
            counts.append(len(hits))
            distances.append(near[hits])
            ids.append(self._ids[hits])
        return Neighbourhoods(np.cumsum(counts), np.concatenate(distances), np.concatenate(ids))

    def save(self, path: str | Path) -> None:
        """Write the index to one file, atomically."""
        save_arrays(
            Path(path),
            _KIND,
            _VERSION,
            {"words": self._words.view(np.int64), "ids": self._ids},
            {"n_bits": self._n_bits},
        )

    @classmethod
    def load(cls, path: str | Path) -> "HammingIndex":
        """Read an index written by `save`."""
        file = load_arrays(Path(path), _KIND, _VERSION)
        index = cls()
        index._n_bits = file.metadata["n_bits"]
        index._words, index._ids = file.arrays["words"].view(np.uint64), file.arrays["ids"]
        return index

    def _check_width(self, codes: Codes) -> None:
        if self._n_bits is not None and codes.n_bits != self._n_bits:
            raise InputError(f"the index holds {self._n_bits}-bit codes, got {codes.n_bits}-bit ones")


def as_words(codes: Codes) -> NDArray[np.uint64]:
    """Return the codes as 64-bit words, zero-padded: (n, ceil(n_bits / 64)). Padding does not change distances."""
    n, width = codes.bits.shape
    padded = np.zeros((n, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = codes.bits
    return padded.view(np.uint64)


def hamming(queries: NDArray[np.uint64], database: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the Hamming distances of two sets of words: (queries, database)."""
    total = np.zeros((len(queries), len(database)), np.int32)
    for word in range(queries.shape[1]):
        total += np.bitwise_count(queries[:, word, None] ^ database[None, :, word])
    return total
