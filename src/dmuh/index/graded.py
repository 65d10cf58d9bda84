"""Graded: the levels of a segment's codes, arranged for soft search."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import read_only
from dmuh.index.grouping import group

RUN = 64  # codes that are passed over together where none is near enough
_OFTEN = 16  # rows from which a code counts as common
_FEW = 0.5  # share of distinct rows up to which rows have an order of their own, each kept once

Ints = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Graded:
    """Rows of levels, code after code; a row belongs to a code, and one or more keys have both.

    rows    int64 (c + 1,) where the rows of each code begin, or empty: every code has one
    levels  uint32 or uint64 (r · w, m) the level rows (see `weighing`)
    starts  int64 (m + 1,) where the keys of each row begin, or empty: every row has one key
    keys    int64 (n,) row after row, ascending within each

    Codes that have many rows come first, since the nearest are likely among them; those with one row come last. But for
    the common ones, codes are in the order of their value, so that neighbours are alike. Where rows have several keys,
    the surest rows of a code come first, since they are the nearest to most queries that are near the code.
    """

    rows: Ints
    levels: NDArray[Any]
    starts: Ints
    keys: Ints

    def __post_init__(self) -> None:
        for name in ("rows", "levels", "starts", "keys"):  # contiguous, which kernels count on and indexing loses
            object.__setattr__(self, name, read_only(np.ascontiguousarray(getattr(self, name))))

    @cached_property
    def n_shared(self) -> int:
        """How many codes, a multiple of RUN or all, come before those at the end that have one row each."""
        shared = np.flatnonzero(np.diff(self.rows) > 1)
        n = int(shared[-1]) + 1 if len(shared) else 0
        return min(-(-n // RUN) * RUN, len(self.rows) - 1)

    def check(self, n_codes: int, n_keys: int) -> None:
        """Raise ValueError unless it fits a segment: kernels trust it, and would read beyond the arrays."""
        n_rows = self.levels.shape[1]
        ends = (self.rows, n_codes, n_rows), (self.starts, n_rows, n_keys)
        for starts, n, last in ends:
            whole = starts.dtype == np.int64 and starts.ndim == 1
            if not whole or (n != last if not len(starts) else len(starts) != n + 1):
                raise ValueError("its levels do not fit its codes")
            if len(starts) and (starts[0] != 0 or starts[-1] != last or (np.diff(starts) < 1).any()):
                raise ValueError("its levels do not fit its codes")
        if self.keys.dtype != np.int64 or self.keys.shape != (n_keys,):
            raise ValueError("its levels do not fit its ids")

    def findable(self, keys: Ints, living: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
        """Return which keys may be found and how many of each row, from the same (n,) in the order of the segment's."""
        if not len(self.starts) or not len(living):  # rows of one key each are in that order
            return living, living.astype(np.int64)
        own = np.isin(self.keys, keys[living])
        return own, np.diff(np.concatenate([[0], np.cumsum(own)])[self.starts])

    def expanded(self) -> NDArray[Any]:
        """Return the level rows (r · w, n) of each of the keys."""
        return np.repeat(self.levels, np.diff(self.starts), axis=1) if len(self.starts) else self.levels


@dataclass(frozen=True, eq=False)
class Summary:
    """What runs of codes have in common: common (w, runs) are the ones that all share, fixed those bits that agree."""

    common: NDArray[Any]
    fixed: NDArray[Any]

    @classmethod
    def of(cls, words: NDArray[Any]) -> "Summary":
        """Summarise the codes (w, c)."""
        begins = np.arange(0, words.shape[1], RUN)
        common = np.bitwise_and.reduceat(words, begins, axis=1)
        return cls(common, ~(common ^ np.bitwise_or.reduceat(words, begins, axis=1)))


def arranged(
    words: NDArray[Any], starts: Ints, keys: Ints, levels: NDArray[Any]
) -> tuple[NDArray[Any], Ints, Ints, Graded]:
    """Arrange codes (w, c), where the keys of each begin, the keys (n,) and level rows (r · w, n) of each key.

    Returns the codes, their starts and keys in their new order, and the levels.
    """
    sizes = np.diff(starts)
    whole = np.concatenate([np.repeat(words, sizes, axis=1), levels])
    same = group(whole)
    if len(same) > _FEW * len(keys):
        order = _common_first(words, sizes)
        starts, by_key = moved(starts, order)
        keys = read_only(keys[by_key])
        return words[:, order], starts, keys, Graded(starts, levels[:, by_key], _NONE, keys)
    of_code = np.repeat(np.arange(len(sizes)), sizes)[same.first]
    n_rows = np.bincount(of_code, minlength=len(sizes))
    order = _common_first(words, n_rows)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    above = levels[:, same.first] ^ np.tile(words[:, of_code], (len(levels) // len(words), 1))
    by_code = np.lexsort((-np.bitwise_count(above).sum(axis=0, dtype=np.int64), place[of_code]))
    row_starts = np.concatenate([[0], np.cumsum(n_rows[order])])
    key_starts, key_moved = moved(same.starts, by_code)
    graded = Graded(row_starts, levels[:, same.first[by_code]], key_starts, keys[same.rows[key_moved]])
    starts, by_key = moved(starts, order)
    return words[:, order], starts, keys[by_key], graded


def _common_first(words: NDArray[Any], sizes: Ints) -> Ints:
    """Return the order of codes: common ones, the most common first, then those with several rows, then the others."""
    kind = np.where(sizes >= _OFTEN, -sizes, np.where(sizes > 1, 0, 1))
    return np.lexsort((words[0], kind))


def moved(starts: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Return where groups begin in another order, and which members stand there, by where they begin now.

    Where they begin may be empty: every group has one member.
    """
    if not len(starts):
        return _NONE, order
    sizes = np.diff(starts)[order]
    ends = np.cumsum(sizes)
    members = np.repeat(starts[order] - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    return np.concatenate([[0], ends]), members
