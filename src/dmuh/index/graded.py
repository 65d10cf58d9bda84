"""Graded: the levels of a segment's codes, arranged for soft search."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import Words, read_only
from dmuh.index.cells import Cells
from dmuh.index.grouping import group, in_key_order
from dmuh.index.shells import Shells, find_shells

_FEW = 0.5  # share of distinct rows up to which each is kept once, with the keys that have it

Ints = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Graded:
    """Rows of codes with their levels.

    words   uint32 or uint64 (w, m) the code of each row
    levels  uint32 or uint64 (r · w, m) the level rows (see `weighing`)
    starts  int64 (m + 1,) where the keys of each row begin, or empty: every row has one key
    keys    int64 (n,) row after row, ascending within each
    shells  in which the rows stand, or None: rows and keys are those of the segment
    """

    words: Words
    levels: Words
    starts: Ints
    keys: Ints
    shells: Shells | None
    _found: list[Ints] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("words", "levels", "starts", "keys"):  # contiguous, which kernels count on and indexing loses
            object.__setattr__(self, name, read_only(np.ascontiguousarray(getattr(self, name))))

    def check(self, n_keys: int, n_bits: int) -> None:
        """Raise ValueError unless it fits a segment: kernels trust it, and would read beyond the arrays."""
        n = self.levels.shape[1]
        if self.words.dtype != self.levels.dtype or self.words.ndim != 2 or self.words.shape[1] != n:
            raise ValueError("its levels do not fit its codes")
        if ones_beyond(self.words, n_bits) or any(
            ones_beyond(self.levels[first : first + len(self.words)], n_bits)
            for first in range(0, len(self.levels), len(self.words))
        ):
            raise ValueError("its levels have ones beyond their length")
        whole = self.starts.dtype == np.int64 and self.starts.ndim == 1
        if not whole or (n != n_keys if not len(self.starts) else len(self.starts) != n + 1):
            raise ValueError("its levels do not fit its ids")
        if len(self.starts) and (self.starts[0] != 0 or self.starts[-1] != n_keys or (np.diff(self.starts) < 1).any()):
            raise ValueError("its levels do not fit its ids")
        if self.keys.dtype != np.int64 or self.keys.shape != (n_keys,):
            raise ValueError("its levels do not fit its ids")
        if self.shells is not None:
            self.shells.check(self.words, n_bits)

    def shell_arrays(self, n_bits: int) -> tuple[Any, ...]:
        """Return what kernels take of rows in shells.

        lacking  uint16 (t,) how many steps the first row of each run of 64 lacks to the highest level of all bits
        centres, begins and runs, shortest and longest, as `Shells` has them
        surest   uint16 (s,) the first of `lacking` of each shell
        n_alike  int: the first shells, whose rows have one code each
        """
        assert self.shells is not None, "asked for rows in shells"
        shells, first, runs = self.shells, self.shells.first_rows, self.shells.runs
        lacking = _below(self.words[:, first], self.levels[:, first], n_bits)
        places = shells.centres, shells.begins, read_only(runs), shells.shortest, shells.longest
        n_alike = int(np.argmax(np.append(shells.longest, 1) > 0))
        return read_only(lacking), *places, read_only(lacking[runs[:-1]]), n_alike

    def findable(self, keys: Ints, living: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
        """Return which keys may be found and how many of each row, from the same (n,) in the order of the segment's."""
        own = living[self._places(keys)] if len(living) and self.shells is not None else living
        if not len(self.starts) or not len(living):
            return own, own.astype(np.int64)
        return own, np.diff(np.concatenate([[0], np.cumsum(own)])[self.starts])

    def _places(self, keys: Ints) -> Ints:
        """Return where the keys of the rows stand among those of the segment; found once, as both never change."""
        if not self._found:
            ascending = np.argsort(keys)
            self._found.append(ascending[np.searchsorted(keys, self.keys, sorter=ascending)])
        return self._found[0]

    def expanded(self) -> tuple[Words, Words]:
        """Return the code (w, n) and the level rows (r · w, n) of each of the keys."""
        if not len(self.starts):
            return self.words, self.levels
        sizes = np.diff(self.starts)
        return np.repeat(self.words, sizes, axis=1), np.repeat(self.levels, sizes, axis=1)


def in_shells(words: Words, starts: Ints, keys: Ints, levels: Words, n_bits: int, cells: Cells | None) -> Graded:
    """Arrange the level rows (r · w, n) of keys (n,) of codes (w, c), which stand in the cells, if there are any.

    starts  int64 (c + 1,) where the keys of each code begin, or empty: every code has one key
    """
    n_codes, n = words.shape[1], len(keys)
    of_code = np.repeat(np.arange(n_codes), np.diff(starts)) if len(starts) else np.arange(n)
    same = group(np.concatenate([words[:, of_code], levels]))
    each = np.arange(n) if len(same) > _FEW * n else same.first  # a key of each row
    shells, shell = find_shells(words, np.bincount(of_code[each], minlength=n_codes), cells, n_bits)
    own, levels = words[:, of_code[each]], levels[:, each]
    below = _below(own, levels, n_bits).astype(np.int64)
    _, by_sureness = in_key_order(below, int(below.max(initial=0)) + 1)
    _, by_shell = in_key_order(shell[of_code[each[by_sureness]]], len(shells.shortest))
    by_row = by_sureness[by_shell]
    row_starts, members = (_NONE, by_row) if len(each) == n else moved(same.starts, by_row)
    row_keys = keys[members if len(each) == n else same.rows[members]]
    return Graded(own[:, by_row], levels[:, by_row], row_starts, row_keys, shells)


def ones_beyond(words: Words, n_bits: int) -> bool:
    """Return whether any code (w, n) has ones beyond its length."""
    used = (n_bits - 1) % (8 * words.itemsize) + 1  # bits of the last word
    return bool(words.shape[1]) and bool(int(np.bitwise_or.reduce(words[-1])) >> used)


def _below(words: Words, levels: Words, n_bits: int) -> NDArray[np.uint16]:
    """Return how many steps each code (w, m) lacks to the highest level of all bits, by its level rows (r · w, m)."""
    total = np.full(words.shape[1], n_bits * len(levels) // len(words), np.uint16)
    for row, level in enumerate(levels):
        total -= np.bitwise_count(level ^ words[row % len(words)])
    return total


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
