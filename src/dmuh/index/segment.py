"""Segment: an unchanging set of codes, each distinct code stored once with the ids that have it."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index import cells, plain
from dmuh.index.arranging import Later
from dmuh.index.base import Ids
from dmuh.index.bits import distances_to, read_only, word_type
from dmuh.index.cells import Cells, find_cells
from dmuh.index.graded import Graded, in_shells, moved, ones_beyond
from dmuh.index.grouping import group
from dmuh.index.kernel_use import KERNELS
from dmuh.machine.workers import over_cores

_SEARCHES = 4  # for each cell, by which putting codes into cells has paid
_FEW_CODES = 256  # from which cells are looked for where there are many rows of levels
_MOSTLY = 0.75  # share of distinct codes from which those with levels are not grouped
_APART = 3.0  # strictness for these: a search by levels looks farther than one by bits, and a scan is quick

Mask = NDArray[np.bool_]
_NO_STARTS, _NO_COUNTS, _ALL = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_)


@dataclass(frozen=True, eq=False)
class Segment:
    """Distinct codes with the keys that have them; keys are shuffled ids (see `shuffle`), by which ties go round.

    words   uint32 or uint64 (w, c) the codes
    starts  int64 (c + 1,) where the keys of each code begin, or empty: every code has one key
    keys    int64 (n,) code after code, ascending within each
    living  bool (n,) which keys are not removed, or empty: none is
    n_bits  length of a code
    graded  the levels of the codes, where they have any
    cells   in which the codes stand, or None: in any order
    """

    words: NDArray[Any]
    starts: Ids
    keys: Ids
    living: Mask
    n_bits: int
    graded: Graded | None = None
    cells: Cells | None = None
    _later: "Later[tuple[Segment, Ids]]" = field(default_factory=Later)

    def __post_init__(self) -> None:
        for name in ("words", "starts", "keys"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def build(cls, words: NDArray[Any], keys: Ids, levels: NDArray[Any], n_bits: int) -> "Segment":
        """Make a segment of codes (w, n), their unique keys (n,) and their level rows (r · w, n).

        Where there are levels, and codes are hardly ever equal and in no cells, equal ones are kept apart, each with
        its one row: a pass over all is the quickest then.
        """
        if not np.all(keys[1:] > keys[:-1]):
            order = np.argsort(keys)
            words, keys, levels = words[:, order], keys[order], levels[:, order]
        same = group(words)
        distinct, starts = words[:, same.first], same.starts if len(same) < len(keys) else _NO_STARTS
        graded, apart = len(levels) > 0, len(same) > _MOSTLY * len(keys)
        strictness = _APART if graded and apart else 1.0
        found = find_cells(distinct, np.diff(starts), n_bits, _fewest(graded, len(keys)), strictness)
        # in no cells common codes come first, where the nearest are likely
        in_which, order = found or (None, np.argsort(-np.diff(same.starts), kind="stable"))
        if graded and apart and found is None:
            members = same.rows[moved(same.starts, order)[1]]
            words, keys = np.ascontiguousarray(words[:, members]), read_only(keys[members])
            rows = Graded(words, levels[:, members], _NO_STARTS, keys, None)
            return cls(words, _NO_STARTS, keys, _ALL, n_bits, rows)
        starts, by_key = moved(starts, order)
        distinct, members = np.ascontiguousarray(distinct[:, order]), same.rows[by_key]
        keys = read_only(keys[members])
        in_levels = in_shells(distinct, starts, keys, levels[:, members], n_bits, in_which) if graded else None
        return cls(distinct, starts, keys, _ALL, n_bits, in_levels, in_which)

    def in_cells(self) -> "tuple[Segment, Ids] | None":
        """Return the segment with its codes in cells, none removed, and where each of its keys stands here.

        None where cells do not pay.
        """
        made = Segment.build(*replace(self, living=_ALL).expanded(), self.n_bits)
        if made.cells is None:
            return None
        ascending = np.argsort(self.keys)
        return made, ascending[np.searchsorted(self.keys, made.keys, sorter=ascending)]

    @cached_property
    def _in_cells(self) -> "Segment":
        """The segment in cells, once it is made."""
        assert self._later.made is not None, "asked for when it is there"
        found, key_order = self._later.made
        return replace(found, living=self.living[key_order] if len(self.living) else _ALL)

    def quickest(self) -> "Segment":
        """Return the segment as it is searched quickest: in cells, once these were made beside the searches."""
        return self if self._later.made is None else self._in_cells

    def note_searched(self, times: int) -> None:
        """Have the codes put into cells once they were searched as often as that costs."""
        n = self.words.shape[1]
        if self.cells is None and n >= _fewest(self.graded is not None, len(self.keys)):
            self._later.ask(times, _SEARCHES * int(n**0.5), self.in_cells)

    def check(self, n_rows: int) -> None:
        """Raise ValueError unless `build` makes such, with r = n_rows: kernels trust it, and would read elsewhere."""
        if not isinstance(self.n_bits, int) or self.n_bits < 1:
            raise ValueError(f"its codes have {self.n_bits!r} bits")
        kind = word_type(self.n_bits)
        if (
            self.words.dtype != kind
            or self.words.ndim != 2
            or len(self.words) != -(-self.n_bits // (8 * kind.itemsize))
        ):
            raise ValueError("its codes are not of the length that it names")
        if ones_beyond(self.words, self.n_bits):
            raise ValueError("its codes have ones beyond their length")
        if self.keys.dtype != np.int64 or self.keys.ndim != 1 or self.starts.dtype != np.int64 or self.starts.ndim != 1:
            raise ValueError("its ids or their places are not whole numbers")
        n_codes = self.words.shape[1]
        if not len(self.starts):
            fits = len(self.keys) == n_codes
        else:
            fits = len(self.starts) == n_codes + 1 and self.starts[0] == 0 and self.starts[-1] == len(self.keys)
        if not fits or (np.diff(self.starts) < 1).any():
            raise ValueError("its ids do not fit its codes")
        levels = np.empty((0, 0), kind) if self.graded is None else self.graded.levels
        if levels.dtype != kind or levels.ndim != 2 or len(levels) != n_rows * len(self.words):
            raise ValueError("its levels do not fit its codes")
        if self.graded is not None:
            self.graded.check(len(self.keys), self.n_bits)

    @property
    def n_living(self) -> int:
        """How many keys are not removed."""
        return int(self.living.sum()) if len(self.living) else len(self.keys)

    @property
    def living_keys(self) -> Ids:
        """The keys that are not removed."""
        return self.keys[self.living] if len(self.living) else self.keys

    def expanded(self) -> tuple[NDArray[Any], Ids, NDArray[Any]]:
        """Return the code (w, n), key (n,) and level rows (r · w, n) of everything that is not removed."""
        keys, living = self.keys, self.living
        if self.graded is None:
            words = np.repeat(self.words, np.diff(self.starts), axis=1) if len(self.starts) else self.words
            levels = np.empty((0, len(keys)), words.dtype)
        else:  # whose keys are in an order of their own
            living, _ = self.graded.findable(keys, living)
            keys, (words, levels) = self.graded.keys, self.graded.expanded()
        return (words[:, living], keys[living], levels[:, living]) if len(living) else (words, keys, levels)

    def without(self, keys: Ids) -> "Segment":
        """Return the segment with these keys removed; those that are not in it are passed over."""
        living = self.living if len(self.living) else np.ones(len(self.keys), bool)
        return replace(self, living=living & ~np.isin(self.keys, keys))

    def search(self, queries: NDArray[Any], turns: Ids, k: int, among: Ids | None) -> tuple[NDArray[np.int32], Ids]:
        """Return Hamming distances and turned keys (q, ≤ k) of the nearest of each query, of the keys in `among`.

        queries  (w, q) words, turns int64 (q,) their orders of ties (see `shuffle`)
        """
        living, alive = self.findable(among)
        k = min(k, int(alive.sum()) if len(alive) else len(self.keys))
        n = queries.shape[1]
        distances, found = np.empty((n, k), np.int32), np.empty((n, k), np.int64)
        if k and KERNELS.worth(self.words.dtype, n * self.words.size, "search"):
            self._scan(queries, turns, alive, living, distances, found)
            KERNELS.note_ready(self.words.dtype, "search")
            self.note_searched(n)
        elif k:
            plain.nearest(self._away(queries), self.starts, self.keys, alive, living, turns, distances, found)
        return distances, found

    def within(
        self, queries: NDArray[Any], turns: Ids, radius: int, among: Ids | None
    ) -> tuple[Ids, NDArray[np.int32], Ids]:
        """Return offsets (q + 1,), Hamming distances and turned keys of all within the radius of each query."""
        living, alive = self.findable(among)
        if not KERNELS.worth(self.words.dtype, queries.shape[1] * self.words.size, "within"):
            radii = np.full(queries.shape[1], radius)
            return plain.within(self._away(queries), self.starts, self.keys, living, radii, turns)
        found = self._scan_within(queries, turns, radius, alive, living)
        KERNELS.note_ready(self.words.dtype, "within")
        self.note_searched(queries.shape[1])
        return found

    def _away(self, queries: NDArray[Any]) -> plain.Away:
        return lambda i: distances_to(queries[:, i], self.words)

    def _scan(
        self,
        queries: NDArray[Any],
        turns: Ids,
        alive: Ids,
        living: Mask,
        distances: NDArray[np.int32],
        found: Ids,
    ) -> None:
        """Fill in the nearest of each query, those that are near the same centre one after the other."""
        from dmuh.index.scan import nearest

        n = queries.shape[1]
        codes = self.words, *self.in_which.arrays, self.starts, self.keys, alive, living
        rows = np.ascontiguousarray(queries.T), turns, self.by_centre(queries)
        over_cores(lambda a, b: nearest(*codes, *rows, a, b, self.n_bits, distances, found), n)

    def by_centre(self, queries: NDArray[Any]) -> Ids:
        """Return an order (q,) of queries (w, q) in which those near the same centre follow each other."""
        from dmuh.index.cell_kernels import nearest_centre

        if queries.shape[1] < 2 or self.cells is None:
            return np.arange(queries.shape[1])
        return np.argsort(nearest_centre(read_only(np.ascontiguousarray(queries)), self.cells.centres)[0])

    def _scan_within(
        self, queries: NDArray[Any], turns: Ids, radius: int, alive: Ids, living: Mask
    ) -> tuple[Ids, NDArray[np.int32], Ids]:
        from dmuh.index.within import collect_within, count_within

        n, rows, cells = queries.shape[1], np.ascontiguousarray(queries.T), self.in_which
        counts = np.zeros((n, radius + 1), np.int64)
        codes = self.words, cells.centres, cells.begins, cells.ends, self.starts
        over_cores(lambda a, b: count_within(*codes, alive, rows, a, b, radius, counts), n)
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        place = offsets[:-1, None] + np.concatenate([np.zeros((n, 1), np.int64), np.cumsum(counts, axis=1)], axis=1)
        distances, found = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int64)
        whose = self.keys, living, rows, turns
        over_cores(lambda a, b: collect_within(*codes, *whose, a, b, radius, place, distances, found), n)
        return offsets, distances, found

    def findable(self, among: Ids | None) -> tuple[Mask, NDArray[np.int64]]:
        """Return which keys may be found, and how many of each code; both empty where all may."""
        if among is None:
            return self.living, self._alive
        chosen = np.isin(self.keys, among)
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

    @cached_property
    def in_which(self) -> Cells:
        """The cells of the codes, or one that has them all."""
        return Cells.whole(self.words, self.n_bits) if self.cells is None else self.cells

    @cached_property
    def shell_arrays(self) -> tuple[Any, ...] | None:
        """What kernels take of levels whose rows stand in shells, found once; None where they do not."""
        if self.graded is None or self.graded.shells is None:
            return None
        return self.graded.shell_arrays(self.n_bits)


def _fewest(graded: bool, n_keys: int) -> int:
    """Return from how many distinct codes on cells are looked for: few will do where there are many rows of levels."""
    return cells.FEWEST if not graded or n_keys < cells.FEWEST else min(_FEW_CODES, cells.FEWEST)
