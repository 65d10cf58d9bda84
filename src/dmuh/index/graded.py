"""Graded: the levels of a segment's codes, arranged for soft search."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import read_only
from dmuh.index.grouping import group, in_key_order

_FEW = 0.5  # share of distinct rows up to which each is kept once, with the keys that have it

Ints = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Graded:
    """Rows of levels, code after code, the surest rows of a code first: they are the nearest to most queries near it.

    rows    int64 (c + 1,) where the rows of each code begin, or empty: every code has one
    levels  uint32 or uint64 (r · w, m) the level rows (see `weighing`)
    starts  int64 (m + 1,) where the keys of each row begin, or empty: every row has one key
    keys    int64 (n,) row after row, ascending within each
    """

    rows: Ints
    levels: NDArray[Any]
    starts: Ints
    keys: Ints
    _found: list[Ints] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("rows", "levels", "starts", "keys"):  # contiguous, which kernels count on and indexing loses
            object.__setattr__(self, name, read_only(np.ascontiguousarray(getattr(self, name))))

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

    def unsure(self, words: NDArray[Any], n_bits: int) -> NDArray[np.uint16]:
        """Return how many steps each code (w, c) lacks, in its surest row, to the highest level of all bits: (c,)."""
        return _below(words, self.levels[:, self.rows[:-1]] if len(self.rows) else self.levels, n_bits)

    def findable(self, keys: Ints, living: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
        """Return which keys may be found and how many of each row, from the same (n,) in the order of the segment's."""
        own = living[self._places(keys)] if len(living) and len(self.rows) else living
        if not len(self.starts) or not len(living):
            return own, own.astype(np.int64)
        return own, np.diff(np.concatenate([[0], np.cumsum(own)])[self.starts])

    def _places(self, keys: Ints) -> Ints:
        """Return where the keys of the rows stand among those of the segment; found once, as both never change."""
        if not self._found:
            ascending = np.argsort(keys)
            self._found.append(ascending[np.searchsorted(keys, self.keys, sorter=ascending)])
        return self._found[0]

    def expanded(self) -> NDArray[Any]:
        """Return the level rows (r · w, n) of each of the keys."""
        return np.repeat(self.levels, np.diff(self.starts), axis=1) if len(self.starts) else self.levels


def arranged(
    words: NDArray[Any], starts: Ints, keys: Ints, levels: NDArray[Any], n_bits: int, order: Ints
) -> tuple[NDArray[Any], Ints, Ints, Graded]:
    """Arrange codes (w, c), where the keys of each begin, the keys (n,) and level rows (r · w, n) of each key.

    Returns the codes in the order (c,) that is given, their starts and keys, and the levels.
    """
    starts, by_key = moved(starts, order)
    words, keys, levels = words[:, order], read_only(keys[by_key]), levels[:, by_key]
    if not len(starts):
        return words, starts, keys, Graded(_NONE, levels, _NONE, keys)
    sizes = np.diff(starts)
    of_code = np.repeat(np.arange(len(sizes)), sizes)
    own = words[:, of_code]
    same = group(np.concatenate([own, levels]))
    below = _below(own, levels, n_bits).astype(np.int64)
    if len(same) > _FEW * len(keys):
        by_row = _in_order(below, of_code, len(sizes))
        return words, starts, keys, Graded(starts, levels[:, by_row], _NONE, keys[by_row])
    by_row = _in_order(below[same.first], of_code[same.first], len(sizes))
    of_row = same.first[by_row]
    row_starts = np.concatenate([[0], np.cumsum(np.bincount(of_code[of_row], minlength=len(sizes)))])
    key_starts, key_moved = moved(same.starts, by_row)
    return words, starts, keys, Graded(row_starts, levels[:, of_row], key_starts, keys[same.rows[key_moved]])


def _below(words: NDArray[Any], levels: NDArray[Any], n_bits: int) -> NDArray[np.uint16]:
    """Return how many steps each code (w, m) lacks to the highest level of all bits, by its level rows (r · w, m)."""
    total = np.full(words.shape[1], n_bits * len(levels) // len(words), np.uint16)
    for row, level in enumerate(levels):
        total -= np.bitwise_count(level ^ words[row % len(words)])
    return total


def _in_order(below: Ints, of_code: Ints, n_codes: int) -> Ints:
    """Return the order of rows (m,) by code, and of those of a code by how many steps they lack."""
    _, by_sureness = in_key_order(below, int(below.max(initial=0)) + 1)
    _, by_code = in_key_order(of_code[by_sureness], n_codes)
    return by_sureness[by_code]


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
