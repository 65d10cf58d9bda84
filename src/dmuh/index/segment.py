"""Segment: an unchanging set of codes, each distinct code stored once with the ids that have it."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index import plain
from dmuh.index.base import Ids
from dmuh.index.bits import read_only, word_type
from dmuh.index.grouping import group
from dmuh.index.kernel_use import KERNELS
from dmuh.workers import over_cores

if TYPE_CHECKING:
    from dmuh.index.tables import Tables

_LARGE = 1_000_000  # distinct codes from which tables are worth their memory
_SCANS_BEFORE_TABLES = 256  # queries that are scanned before

Mask = NDArray[np.bool_]
_NO_STARTS, _NO_COUNTS, _ALL = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_)


@dataclass
class Usage:
    """What searching a segment has shown: whether tables pay."""

    scanned: int = 0
    looked_up: int = 0
    helped: int = 0
    wanted: bool = True
    tables: "Tables | None" = None

    def note(self, looked_up: int, helped: int) -> None:
        """Count the queries that were looked up in the tables; give the tables up if they do not help."""
        self.looked_up += looked_up
        self.helped += helped
        if self.looked_up >= _SCANS_BEFORE_TABLES and 2 * self.helped < self.looked_up:
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

    def __post_init__(self) -> None:
        for name in ("words", "starts", "ids"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

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
        """Return the segment with these ids removed; ids that are not in it are passed over."""
        living = self.living if len(self.living) else np.ones(len(self.ids), bool)
        return replace(self, living=living & ~np.isin(self.ids, ids))

    def search(
        self, queries: NDArray[Any], k: int, among: Ids | None, use_tables: bool = True
    ) -> tuple[NDArray[np.int32], Ids]:
        """Return distances and ids (q, ≤ k) of the nearest codes of each query, of those in `among` (ascending)."""
        living, alive = self._living(among)
        k = min(k, int(alive.sum()) if len(alive) else len(self.ids))
        n = queries.shape[1]
        distances, found = np.empty((n, k), np.int32), np.empty((n, k), np.int64)
        if k and KERNELS.worth(self.words.dtype, n * self.words.size, "search"):
            rest = self._look_up(queries, alive, living, distances, found) if use_tables else np.arange(n)
            self._scan(queries, rest, alive, living, distances, found)
            KERNELS.note_ready(self.words.dtype, "search")
        elif k:
            plain.nearest(self.words, self.starts, self.ids, alive, living, queries, distances, found)
        return distances, found

    def within(self, queries: NDArray[Any], radius: int, among: Ids | None) -> tuple[Ids, NDArray[np.int32], Ids]:
        """Return offsets (q + 1,), distances and ids of all codes within the radius of each query."""
        living, alive = self._living(among)
        if not KERNELS.worth(self.words.dtype, queries.shape[1] * self.words.size, "within"):
            return plain.within(self.words, self.starts, self.ids, living, queries, radius)
        found = self._scan_within(queries, radius, alive, living)
        KERNELS.note_ready(self.words.dtype, "within")
        return found

    def _look_up(
        self, queries: NDArray[Any], alive: Ids, living: Mask, distances: NDArray[np.int32], found: Ids
    ) -> NDArray[np.intp]:
        """Answer what the tables can, and return which queries are left for the scan.

        A large segment is filed in tables once as many queries were scanned as that costs. Tables that help less than
        half of the queries are given up.
        """
        from dmuh.index.tables import PART, Tables, nearest_in_tables

        n, usage = queries.shape[1], self._usage
        if usage.tables is None:
            if usage.wanted and self.words.shape[1] >= _LARGE and self.n_bits > PART:
                usage.scanned += n
                if usage.scanned >= _SCANS_BEFORE_TABLES:
                    usage.tables = Tables.build(self.words, self.n_bits)
            return np.arange(n)
        done = np.zeros(n, bool)
        tables = usage.tables
        filed = tables.words, tables.codes, tables.starts, tables.flips, tables.flip_starts
        codes = self.starts, self.ids, alive, living, queries
        over_cores(lambda a, b: nearest_in_tables(*filed, *codes, a, b, self.n_bits, distances, found, done), n)
        rest = np.flatnonzero(~done)
        usage.note(looked_up=n, helped=n - len(rest))
        return rest

    def _scan(
        self,
        queries: NDArray[Any],
        rest: NDArray[np.intp],
        alive: Ids,
        living: Mask,
        distances: NDArray[np.int32],
        found: Ids,
    ) -> None:
        """Compare the queries that are left with all codes, and fill in their rows."""
        from dmuh.index.scan import nearest

        if not len(rest):
            return
        some = queries if len(rest) == queries.shape[1] else np.ascontiguousarray(queries[:, rest])
        near, near_ids = (
            np.empty((len(rest), found.shape[1]), np.int32),
            np.empty((len(rest), found.shape[1]), np.int64),
        )
        codes = self.words, self.starts, self.ids, alive, living, some
        over_cores(lambda a, b: nearest(*codes, a, b, self.n_bits, near, near_ids), len(rest))
        distances[rest], found[rest] = near, near_ids

    def _scan_within(
        self, queries: NDArray[Any], radius: int, alive: Ids, living: Mask
    ) -> tuple[Ids, NDArray[np.int32], Ids]:
        from dmuh.index.scan import collect_within, count_within

        n = queries.shape[1]
        counts = np.zeros((n, radius + 1), np.int64)
        over_cores(lambda a, b: count_within(self.words, self.starts, alive, queries, a, b, radius, counts), n)
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        place = offsets[:-1, None] + np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(counts, axis=1)], axis=1)
        distances, found = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int64)
        codes = self.words, self.starts, self.ids, living, queries
        over_cores(lambda a, b: collect_within(*codes, a, b, radius, place, distances, found), n)
        return offsets, distances, found

    def _living(self, among: Ids | None) -> tuple[Mask, NDArray[np.int64]]:
        """Return which ids may be found, and how many of each code; both empty where all may."""
        if among is None:
            return self.living, self._alive
        chosen = np.isin(self.ids, among)
        living = self.living & chosen if len(self.living) else chosen
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
