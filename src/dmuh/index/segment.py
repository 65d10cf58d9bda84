"""Segment: an unchanging set of codes, each distinct code kept once with the ids that have it."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import word_type
from dmuh.index.grouping import group
from dmuh.index.scan import collect_within, count_within, nearest
from dmuh.index.tables import PART, Tables, nearest_in_tables
from dmuh.workers import over_cores

_LARGE = 1_000_000  # distinct codes from which tables are worth their memory
_SCANS_BEFORE_TABLES = 256  # queries that are scanned before

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
_NO_STARTS, _NO_COUNTS, _ALL = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_)


@dataclass
class Usage:
    """What searching a segment has shown: whether tables pay."""

    scanned: int = 0
    asked: int = 0
    helped: int = 0
    wanted: bool = True
    tables: Tables | None = None

    def note(self, asked: int, helped: int) -> None:
        """Count queries that asked the tables; give the tables up if they do not help."""
        self.asked += asked
        self.helped += helped
        if self.asked >= _SCANS_BEFORE_TABLES and 2 * self.helped < self.asked:
            self.wanted, self.tables = False, None


@dataclass(frozen=True, eq=False)
class Segment:
    """Distinct codes in the order of their smallest id.

    words   uint32 or uint64 (w, c) the codes
    starts  int64 (c + 1,) where the ids of each code begin, or empty: every code has one id
    ids     int64 (n,) code after code, ascending within each
    living  bool (n,) which ids are not removed, or empty: none is
    n_bits  length of a code
    """

    words: NDArray[Any]
    starts: Ids
    ids: Ids
    living: Mask
    n_bits: int
    _usage: Usage = field(default_factory=Usage)

    @classmethod
    def build(cls, words: NDArray[Any], ids: Ids, n_bits: int) -> "Segment":
        """Make a segment of codes (w, n) and their unique ids (n,)."""
        if not np.all(ids[1:] > ids[:-1]):
            order = np.argsort(ids, kind="stable")
            words, ids = words[:, order], ids[order]
        same = group(words)
        if len(same) == len(ids):
            return cls(np.ascontiguousarray(words), _NO_STARTS, ids, _ALL, n_bits)
        return cls(np.ascontiguousarray(words[:, same.first]), same.starts, ids[same.rows], _ALL, n_bits)

    def check(self) -> None:
        """Raise ValueError unless this is what `build` makes: kernels trust it, and would read beyond the arrays."""
        if not isinstance(self.n_bits, int) or self.n_bits < 1:
            raise ValueError(f"its codes have {self.n_bits!r} bits")
        kind = word_type(self.n_bits)
        if (
            self.words.dtype != kind
            or self.words.ndim != 2
            or len(self.words) != -(-self.n_bits // (8 * kind.itemsize))
        ):
            raise ValueError("its codes are not of the length that it names")
        used = (self.n_bits - 1) % (8 * kind.itemsize) + 1  # bits of the last word
        if self.words.shape[1] and int(np.bitwise_or.reduce(self.words[-1])) >> used:
            raise ValueError("its codes have ones beyond their length")
        if self.ids.dtype != np.int64 or self.ids.ndim != 1 or self.starts.dtype != np.int64 or self.starts.ndim != 1:
            raise ValueError("its ids or their places are not whole numbers")
        n_codes = self.words.shape[1]
        if not len(self.starts):
            fits = len(self.ids) == n_codes
        else:
            fits = len(self.starts) == n_codes + 1 and self.starts[0] == 0 and self.starts[-1] == len(self.ids)
        if not fits or (np.diff(self.starts) < 1).any():
            raise ValueError("its ids do not fit its codes")

    @property
    def n_living(self) -> int:
        """How many ids are not removed."""
        return int(self.living.sum()) if len(self.living) else len(self.ids)

    def expanded(self) -> tuple[NDArray[Any], Ids]:
        """Return the code (w, n) and the id (n,) of everything that is not removed."""
        words = np.repeat(self.words, np.diff(self.starts), axis=1) if len(self.starts) else self.words
        return (words[:, self.living], self.ids[self.living]) if len(self.living) else (words, self.ids)

    def without(self, ids: Ids) -> "Segment":
        """Return the segment with these ids removed; those it does not hold are passed over."""
        living = self.living if len(self.living) else np.ones(len(self.ids), bool)
        return replace(self, living=living & ~np.isin(self.ids, ids))

    def search(
        self, queries: NDArray[Any], k: int, among: Ids | None, use_tables: bool = True
    ) -> tuple[NDArray[np.int32], Ids]:
        """Return distances and ids (q, ≤ k) of the nearest codes of each query, of those in `among` (ascending).

        A large segment is filed in tables once as many queries were scanned as that costs. Queries that the tables do
        not help are scanned still, and tables that help less than half of the queries are given up.
        """
        living, alive = self._living(among)
        k = min(k, int(alive.sum()) if len(alive) else len(self.ids))
        n = queries.shape[1]
        distances, found = np.empty((n, k), np.int32), np.empty((n, k), np.int64)
        if k == 0:
            return distances, found
        rest = np.arange(n)
        tables = self._usage.tables
        if tables is not None and use_tables:
            done = np.zeros(n, bool)
            filed = tables.words, tables.codes, tables.starts, tables.flips, tables.flip_starts
            kept = self.starts, self.ids, alive, living, queries
            over_cores(lambda a, b: nearest_in_tables(*filed, *kept, a, b, self.n_bits, distances, found, done), n)
            rest = np.flatnonzero(~done)
            self._usage.note(asked=n, helped=n - len(rest))
        elif use_tables and self._usage.wanted and self.words.shape[1] >= _LARGE and self.n_bits > PART:
            self._usage.scanned += n
            if self._usage.scanned >= _SCANS_BEFORE_TABLES:
                self._usage.tables = Tables.build(self.words, self.n_bits)
        if len(rest):
            some = queries if len(rest) == n else np.ascontiguousarray(queries[:, rest])
            far, far_ids = np.empty((len(rest), k), np.int32), np.empty((len(rest), k), np.int64)
            args = self.words, self.starts, self.ids, alive, living, some
            over_cores(lambda a, b: nearest(*args, a, b, self.n_bits, far, far_ids), len(rest))
            distances[rest], found[rest] = far, far_ids
        return distances, found

    def within(
        self, queries: NDArray[Any], radius: int, among: Ids | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], Ids]:
        """Return offsets (q + 1,), distances and ids of all codes within the radius of each query."""
        living, alive = self._living(among)
        n = queries.shape[1]
        seen = np.zeros((n, radius + 1), np.int64)
        over_cores(
            lambda first, last: count_within(self.words, self.starts, alive, queries, first, last, radius, seen), n
        )
        offsets = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        place = offsets[:-1, None] + np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(seen, axis=1)], axis=1)
        distances, found = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int64)
        over_cores(
            lambda first, last: collect_within(
                self.words, self.starts, self.ids, living, queries, first, last, radius, place, distances, found
            ),
            n,
        )
        return offsets, distances, found

    def _living(self, among: Ids | None) -> tuple[Mask, NDArray[np.int64]]:
        """Return which ids may be found, and how many of each code; both empty where all may."""
        if among is None:
            return self.living, self._alive
        asked = np.isin(self.ids, among)
        living = self.living & asked if len(self.living) else asked
        return living, self._counted(living)

    @cached_property
    def _alive(self) -> NDArray[np.int64]:
        """How many ids of each code are not removed, counted once for all searches; empty where none is removed."""
        return self._counted(self.living) if len(self.living) else _NO_COUNTS

    def _counted(self, living: Mask) -> NDArray[np.int64]:
        if not len(self.starts):
            return living.astype(np.int64)
        running = np.concatenate([[0], np.cumsum(living)])
        return np.diff(running[self.starts])
