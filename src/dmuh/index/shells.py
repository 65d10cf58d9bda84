"""Shells: rows of codes and levels that are all about as far from one centre, the surest first.

A search by levels looks farther than one by bits, and what decides how far is how many steps a row lacks to the highest
level of all bits: these cost something whatever the query is. So the rows of each shell are sorted by it, and a query
takes them from the front until no other can be near enough (see `shell_search`). A code that many rows have is a shell
of its own; the others stand around a few of the centres of the cells, by their distance to it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import Words, distances_to, read_only
from dmuh.index.cells import RUN, Cells

_ALONE = 128  # rows of a code from which it is a shell of its own
_FULL, _WIDE = 2048, 8  # rows, and distances to the centre, that a shell has before another one begins
_CENTRES = 0.15  # share of the centres of cells, those of the most rows: fewer shells are looked into than of all
_MOSTLY = 0.75  # share of distinct codes from which these hardly lie in clusters: shells are large, around all centres

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shells:
    """Where each shell stands among the rows.

    centres   uint32 or uint64 (w, s)
    begins    int64 (s + 1,) where the rows of each shell begin, and the last one's end
    shortest  int32 (s,) how far the nearest of its rows is from the centre, at least
    longest   int32 (s,) and the farthest, at most; 0: all have the code that is the centre
    """

    centres: NDArray[Any]
    begins: Ints
    shortest: NDArray[np.int32]
    longest: NDArray[np.int32]

    def __post_init__(self) -> None:
        for name in ("centres", "begins", "shortest", "longest"):
            object.__setattr__(self, name, read_only(np.ascontiguousarray(getattr(self, name))))

    def check(self, words: Words, n_bits: int) -> None:
        """Raise ValueError unless these can be shells of the rows (w, m): kernels trust them."""
        n = len(self.shortest)
        fits = self.centres.dtype == words.dtype and self.centres.shape == (len(words), n)
        fits = fits and self.shortest.shape == self.longest.shape == (n,) and self.begins.shape == (n + 1,) and n > 0
        fits = fits and self.begins.dtype == np.int64 and self.shortest.dtype == self.longest.dtype == np.int32
        if not fits or self.begins[0] != 0 or self.begins[-1] != words.shape[1] or (np.diff(self.begins) < 1).any():
            raise ValueError("its shells do not fit its levels")
        if self.shortest.min() < 0 or self.longest.max() > n_bits:
            raise ValueError("its shells do not fit its levels")

    @property
    def runs(self) -> Ints:
        """Where the runs of 64 rows of each shell begin, if all runs are counted: (s + 1,)."""
        return np.concatenate([[0], np.cumsum(-(-np.diff(self.begins) // RUN))])

    @property
    def first_rows(self) -> Ints:
        """The first row of each run."""
        runs = self.runs
        first: Ints = np.repeat(self.begins[:-1] - RUN * runs[:-1], np.diff(runs)) + RUN * np.arange(runs[-1])
        return first


def find_shells(words: Words, n_rows: Ints, cells: Cells | None, n_bits: int) -> tuple[Shells, Ints]:
    """Return shells of the rows of codes (w, c) that have so many (c,), and in which shell each code's are (c,).

    The codes stand in the cells, if there are any.
    """
    scattered = words.shape[1] > _MOSTLY * n_rows.sum()
    centres, cell, ring = _around(words, n_rows, cells, 1.0 if scattered else _CENTRES)
    alone, n_rings = n_rows >= _ALONE, n_bits + 1
    n_alone, key = int(alone.sum()), cell * n_rings + ring
    table = np.bincount(key[~alone], n_rows[~alone], centres.shape[1] * n_rings).astype(np.int64).reshape(-1, n_rings)
    before = np.cumsum(table, axis=1) - table  # rows that are nearer to the centre
    full = before // (4 * _FULL if scattered else _FULL)  # shells that these would fill
    around, away = np.nonzero(table)
    another = (np.diff(around) != 0) | (np.diff(full[around, away]) != 0) | (np.diff(away // _WIDE) != 0)
    begins, ends = (np.concatenate(edges)[: len(away)] for edges in (([True], another), (another, [True])))
    of_ring = np.zeros_like(table)
    of_ring[around, away] = n_alone + np.cumsum(begins) - 1
    shell = np.where(alone, np.cumsum(alone) - 1, of_ring.ravel()[key])
    nothing = np.zeros(n_alone, np.int64)
    shells = Shells(
        np.concatenate([words[:, alone], centres[:, around[begins]]], axis=1),
        np.concatenate([[0], np.cumsum(np.bincount(shell, n_rows).astype(np.int64))]),
        np.concatenate([nothing, away[begins]]).astype(np.int32),
        np.concatenate([nothing, away[ends]]).astype(np.int32),
    )
    return shells, shell


def _around(words: Words, n_rows: Ints, cells: Cells | None, share: float) -> tuple[Words, Ints, Ints]:
    """Return a share of centres (w, m), which of them is nearest to each code (c,), and how far it is (c,)."""
    if cells is None:
        centre = np.zeros((len(words), 1), words.dtype)
        return centre, np.zeros(words.shape[1], np.int64), distances_to(centre[:, 0], words).astype(np.int64)
    from dmuh.index.cell_kernels import nearest_centre

    before = np.concatenate([[0], np.cumsum(n_rows)])
    most = np.argsort(before[cells.begins[:, 0]] - before[cells.ends[:, -1]], kind="stable")
    centres = cells.centres[:, np.sort(most[: max(1, int(share * len(most)))])]
    centres = read_only(np.ascontiguousarray(centres))
    return centres, *nearest_centre(read_only(np.ascontiguousarray(words)), centres)
