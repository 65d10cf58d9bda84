"""Cells: codes sorted by the nearest of a few centres, so that a search passes over most of them.

Learned codes lie in clusters. A code of a cell is r bits away from its centre, and stands in the cell's ring r. A query
that is D bits away from the centre is at least |D - r| away from all of that ring: once k codes are known that are no
farther than a limit, the rings from D - limit to D + limit are all that can matter, and most cells have none of them.
Results are exactly those of a scan.

By soft distances the codes of a ring are at least as far as the lightest |D - r| bits weigh, of those in which query
and centre differ if r < D, of those in which they agree if r > D.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import distances_to, read_only
from dmuh.index.grouping import in_key_order
from dmuh.index.kernel_use import KERNELS

RUN = 64  # codes or cells that are compared together
FEWEST = 16_384  # distinct codes from which cells are worth looking for
_CELLS = 0.35  # cells, by the root of the number of codes
_MOST = 4096  # cells
_PER_CELL = 64  # codes of the sample by which a centre is found
_ROUNDS = 3  # of finding centres
_TRIED = 32  # codes that are searched for, to see whether cells pay
_ANSWERS = 100  # ids that these searches find
_PAYS = 0.5  # share of codes that they may still compare

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Where the rings of each cell stand among the codes: a cell's codes from begins[cell, r] to ends[cell, r] exactly.

    centres  uint32 or uint64 (w, m)
    begins   int64 (m, n_bits + 1) where the codes at least r bits from the centre begin
    ends     int64 (m, n_bits + 1) where those at most r bits from it end
    """

    centres: NDArray[Any]
    begins: Ints
    ends: Ints

    def __post_init__(self) -> None:
        for name in ("centres", "begins", "ends"):
            object.__setattr__(self, name, read_only(np.ascontiguousarray(getattr(self, name))))

    @classmethod
    def whole(cls, words: NDArray[Any], n_bits: int) -> "Cells":
        """Return one cell of all codes (w, c), of which nothing is known."""
        begins = np.zeros((1, n_bits + 1), np.int64)
        return cls(np.zeros((len(words), 1), words.dtype), begins, begins + words.shape[1])

    @classmethod
    def of_rings(cls, centres: NDArray[Any], rings: NDArray[Any], words: NDArray[Any], n_bits: int) -> "Cells":
        """Return cells of codes (w, c) by where each ring begins, int64 (m, n_bits + 2), and the last one ends.

        Raise ValueError unless all codes are in them: kernels trust these places, and would read elsewhere.
        """
        n_codes = words.shape[1]
        if centres.dtype != words.dtype or centres.ndim != 2 or len(centres) != len(words):
            raise ValueError("its cells do not fit its codes")
        if rings.dtype != np.int64 or rings.shape != (centres.shape[1], n_bits + 2):
            raise ValueError("its cells do not fit its codes")
        if not len(rings) or rings[0, 0] != 0 or rings[-1, -1] != n_codes or (np.diff(rings.ravel()) < 0).any():
            raise ValueError("its cells do not fit its codes")
        if (rings[1:, 0] != rings[:-1, -1]).any():
            raise ValueError("its cells do not fit its codes")
        return cls(centres, rings[:, :-1], rings[:, 1:])

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], Ints, Ints, NDArray[np.int32], NDArray[np.int32]]:
        """What kernels take: centres, begins, ends, and how far a cell's nearest and farthest code are, int32 (m,)."""
        some = self.begins < self.ends
        shortest, longest = some.argmax(axis=1), some.shape[1] - 1 - some[:, ::-1].argmax(axis=1)
        return (
            self.centres,
            self.begins,
            self.ends,
            read_only(shortest.astype(np.int32)),
            read_only(longest.astype(np.int32)),
        )

    @property
    def rings(self) -> Ints:
        """Where each ring of each cell begins, and the last one ends: (m, n_bits + 2)."""
        return np.concatenate([self.begins, self.ends[:, -1:]], axis=1)


def find_cells(
    words: NDArray[Any], sizes: Ints, n_bits: int, fewest: int | None = None, strictness: float = 1.0
) -> tuple[Cells, Ints] | None:
    """Return cells of distinct codes (w, c) and the order (c,) in which these stand in them.

    sizes       int64 (c,) how many ids each code has, or empty: one each
    strictness  by how much smaller a part of the codes must be left than where codes alone are compared

    None where cells do not pay: codes are fewer than `fewest`, or lie anywhere. Several threads may do it at once.
    """
    n_codes = words.shape[1]
    wanted = min(_MOST, max(1, int(_CELLS * n_codes**0.5)))
    if n_codes < (FEWEST if fewest is None else fewest) or not KERNELS.worth(
        words.dtype, n_codes * wanted * len(words), "cells"
    ):
        return None
    from dmuh.index.cell_kernels import majority, nearest_centre

    rng = np.random.default_rng(0)
    words = np.ascontiguousarray(words)  # numpy orders what it takes out as it likes, and kernels know one order
    sample = read_only(np.ascontiguousarray(words[:, rng.permutation(n_codes)[: wanted * _PER_CELL]]))
    common = np.argsort(sizes)[::-1][: wanted // 2] if len(sizes) else np.empty(0, np.int64)
    centres = np.ascontiguousarray(np.concatenate([words[:, common], sample[:, : wanted - len(common)]], axis=1))
    for _ in range(_ROUNDS):
        cell, _ = nearest_centre(sample, read_only(centres))
        centres = majority(sample, cell, centres, n_bits)
    centres = read_only(np.ascontiguousarray(np.unique(centres, axis=1)))
    cell, away = nearest_centre(read_only(words), centres)
    found = _sorted(words, centres, cell, away, n_bits)
    KERNELS.note_ready(words.dtype, "cells")
    share = _share(found[0], read_only(words), sizes, sample[:, :_TRIED], n_bits)
    return found if share * strictness < _PAYS else None


def _sorted(words: NDArray[Any], centres: NDArray[Any], cell: Ints, away: Ints, n_bits: int) -> tuple[Cells, Ints]:
    """Return the cells, and the order (c,) of codes by cell and by how far (c,) they are from its centre."""
    m, n_rings = centres.shape[1], n_bits + 1
    starts, order = in_key_order(cell * n_rings + away, m * n_rings)
    rings = np.append(starts[:-1].reshape(m, n_rings), starts[n_rings::n_rings, None], axis=1)
    some = rings[:, 0] < rings[:, -1]
    return Cells.of_rings(centres[:, some], rings[some], words, n_bits), order


def _share(cells: Cells, words: NDArray[Any], sizes: Ints, tried: NDArray[Any], n_bits: int) -> float:
    """Return what share of all codes a search for some of them (w, t) compares."""
    from dmuh.index.cell_kernels import limits

    reach = limits(words, sizes, read_only(np.ascontiguousarray(tried)), _ANSWERS, n_bits)
    share = 0.0
    for query, limit in zip(tried.T, reach, strict=True):
        away = distances_to(query, cells.centres).astype(np.int64)
        low, high = np.maximum(away - limit, 0)[:, None], np.minimum(away + limit, n_bits)[:, None]
        compared = np.take_along_axis(cells.ends, high, axis=1) - np.take_along_axis(cells.begins, low, axis=1)
        share += compared.sum() / words.shape[1] / len(reach)
    return share
