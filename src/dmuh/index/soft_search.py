"""Search of one segment by soft distance: by the compiled kernels, or by numpy where the work is small."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmuh.index import plain
from dmuh.index.base import Ids
from dmuh.index.bits import Words, read_only
from dmuh.index.kernel_use import KERNELS
from dmuh.index.segment import Segment
from dmuh.index.weighing import SoftQueries, weighted
from dmuh.machine.workers import over_cores

_COST = 3  # what weighing a word costs by numpy, in words compared
_TOGETHER = 256  # queries whose keys are counted by distance before they are written

Distances = NDArray[np.int32]
_NONE = read_only(np.empty(0, np.int64))


class _Rows(NamedTuple):
    """What is weighed: a code, or a row of a code and its levels, with one key or more.

    words   (w, m) the codes
    levels  (r · w, m) the level rows; none for codes without levels
    starts  int64 (m + 1,) where the keys of each row begin, or empty: one each
    keys    int64 (n,)
    alive   int64 (m,) how many keys of a row may be found, and living bool (n,) which, or both empty: all
    """

    words: Words
    levels: Words
    starts: Ids
    keys: Ids
    alive: Ids
    living: NDArray[np.bool_]


def nearest(segment: Segment, queries: SoftQueries, k: int, among: Ids | None) -> tuple[Distances, Ids]:
    """Return soft distances in units and turned keys (q, ≤ k) of the nearest of each query, of the keys in `among`."""
    living, alive = segment.findable(among)
    k = min(k, int(alive.sum()) if len(alive) else len(segment.keys))
    n = len(queries.words)
    distances, found = np.empty((n, k), np.int32), np.empty((n, k), np.int64)
    rows = _rows(segment, alive, living)
    kernel = _kernel(segment)
    if k and KERNELS.worth(segment.words.dtype, _cost(rows, n), kernel):
        _scan(kernel, segment, rows, queries, distances, found)
        KERNELS.note_ready(segment.words.dtype, kernel)
        segment.note_searched(n)
    elif k:
        plain.nearest(_away(rows, queries), *rows[2:], queries.turns, distances, found)
    distances *= queries.unit
    distances += queries.least[:, None].astype(np.int32)
    return distances, found


def within(segment: Segment, queries: SoftQueries, reach: int, among: Ids | None) -> tuple[Ids, Distances, Ids]:
    """Return offsets (q + 1,), soft distances in units and turned keys of all within a reach in units of each query."""
    living, alive = segment.findable(among)
    rows = _rows(segment, alive, living)
    radii = np.clip((reach - queries.least) // queries.unit, -1, queries.most)
    if KERNELS.worth(segment.words.dtype, _cost(rows, len(radii)), "soft within"):
        parts = [_scan_within(segment, rows, queries, radii, first) for first in range(0, len(radii), _TOGETHER)]
        nothing = _NONE, _NONE.astype(np.int32), _NONE
        counted, distances, found = (np.concatenate(arrays) for arrays in zip(nothing, *parts, strict=True))
        offsets = np.concatenate([[0], np.cumsum(counted)])
        KERNELS.note_ready(segment.words.dtype, "soft within")
    else:
        away = _away(rows, queries)
        offsets, distances, found = plain.within(away, rows.starts, rows.keys, rows.living, radii, queries.turns)
    distances *= queries.unit
    distances += np.repeat(queries.least, np.diff(offsets)).astype(np.int32)
    return offsets, distances, found


def _rows(segment: Segment, alive: Ids, living: NDArray[np.bool_]) -> _Rows:
    """Return what is to be weighed of a segment, from how many keys of each code may be found, and which."""
    graded = segment.graded
    if graded is None:
        no_levels = read_only(np.empty((0, segment.words.shape[1]), segment.words.dtype))
        return _Rows(segment.words, no_levels, segment.starts, segment.keys, alive, living)
    own_living, row_alive = graded.findable(segment.keys, living)
    return _Rows(graded.words, graded.levels, graded.starts, graded.keys, row_alive, own_living)


def _cost(rows: _Rows, n_queries: int) -> int:
    return _COST * n_queries * (rows.words.size + rows.levels.size)


def _away(rows: _Rows, queries: SoftQueries) -> plain.Away:
    """Return what weighs all rows by numpy."""
    whole = np.concatenate([rows.words, rows.levels])
    return lambda i: weighted(queries.words[i], queries.masks[i], whole)


def _kernel(segment: Segment) -> str:
    """Return what searches: in shells, in cells, or over all."""
    if segment.shell_arrays is not None:
        return "soft search in shells"
    return "soft search" if segment.cells is None else "soft search in cells"


def _scan(kernel: str, segment: Segment, rows: _Rows, queries: SoftQueries, distances: Distances, found: Ids) -> None:
    """Fill in the nearest of each query by a compiled kernel, those near the same centre one after the other."""
    asked = queries.words, queries.masks
    whose, most, n = rows[2:], queries.most, len(found)
    if kernel == "soft search":
        from dmuh.index.soft_whole import nearest_scanned

        over_cores(lambda a, b: nearest_scanned(*rows, *asked, queries.turns, a, b, most, distances, found), n)
        return
    near = segment.by_centre(queries.words[:, : len(segment.words)].T)
    if kernel == "soft search in shells":
        from dmuh.index.shell_search import nearest_in_shells

        assert segment.shell_arrays is not None, "so it was chosen"
        weighed = *rows[:2], segment.shell_arrays, *whose, *asked, queries.weights, queries.lower, queries.turns, near
        over_cores(lambda a, b: nearest_in_shells(*weighed, a, b, most, distances, found), n)
    else:
        from dmuh.index.soft_nearest import nearest_soft

        codes = segment.words, *segment.in_which.arrays, *whose, *asked, queries.weights, queries.turns, near
        over_cores(lambda a, b: nearest_soft(*codes, a, b, most, distances, found), n)


def _scan_within(
    segment: Segment, rows: _Rows, queries: SoftQueries, radii: Ids, first: int
) -> tuple[Ids, Distances, Ids]:
    """Return how many keys are within the radius of each of some queries, their weighted distances and the keys."""
    from dmuh.index.soft_within import sort_ties, visit_within

    some = radii[first : first + _TOGETHER]
    n = len(some)
    weighed = rows.words, rows.levels, segment.shell_arrays, rows.starts, rows.keys, rows.living
    whole = queries.words, queries.masks, queries.weights, queries.lower, queries.turns
    words, masks, weights, lower, turns = (part[first : first + n] for part in whole)
    asked = words, masks, weights, lower, some, turns
    slots = np.zeros((n, int(some.max()) + 2), np.int64)
    distances, found = np.empty(0, np.int32), np.empty(0, np.int64)
    over_cores(lambda a, b: visit_within(*weighed, *asked, a, b, slots, distances, found), n)
    counted = slots.sum(axis=1)
    edges = np.concatenate([[0], np.cumsum(slots)])
    slots = edges[:-1].reshape(slots.shape).copy()
    distances, found = np.empty(edges[-1], np.int32), np.empty(edges[-1], np.int64)
    if len(found):
        over_cores(lambda a, b: visit_within(*weighed, *asked, a, b, slots, distances, found), n)
        over_cores(lambda a, b: sort_ties(edges, a, b, found), len(edges) - 1)
    return counted, distances, found
