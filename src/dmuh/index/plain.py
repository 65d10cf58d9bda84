"""Search by numpy alone, with the results of the compiled scans: for small work, which must not wait for a compiler."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Away = Callable[[int], Array]  # the distances (c,) of all codes to a query, by its position: whole numbers


def nearest(
    away: Away, starts: Array, ids: Array, alive: Array, living: Array, turns: Ints, distances: Array, found: Array
) -> None:
    """Find the k nearest turned ids of each query, nearest first; arguments as in the compiled `nearest`."""
    n, k = found.shape
    sizes = alive if len(alive) else np.diff(starts)  # ids per code; empty: one each
    for i in range(n):
        far = away(i)
        counts = np.bincount(far, sizes) if len(sizes) else np.bincount(far)
        limit = np.searchsorted(np.cumsum(counts), k)  # the distance up to which there are k ids
        near, near_ids = _in_order(starts, ids, living, far, int(limit), turns[i])
        distances[i], found[i] = near[:k], near_ids[:k]


def within(
    away: Away, starts: Array, ids: Array, living: Array, radii: Ints, turns: Ints
) -> tuple[Ints, NDArray[np.int32], Ints]:
    """Return offsets (q + 1,), distances and turned ids of all codes within each query's radius (q,), nearest first."""
    parts = [_in_order(starts, ids, living, away(i), int(radius), turns[i]) for i, radius in enumerate(radii)]
    offsets = np.concatenate([[0], np.cumsum([len(part[1]) for part in parts], dtype=np.int64)]).astype(np.int64)
    near = np.concatenate([np.empty(0, np.int32), *(part[0] for part in parts)], dtype=np.int32)
    return offsets, near, np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])


def _in_order(starts: Array, ids: Array, living: Array, away: Array, limit: int, turn: np.int64) -> tuple[Array, Ints]:
    """Return distance and turned id of all ids whose code is at most `limit` away (c,), in that order."""
    rows = np.flatnonzero(away <= limit)
    near = away[rows]
    if len(starts):
        sizes = starts[rows + 1] - starts[rows]
        ends = np.cumsum(sizes)
        rows = np.repeat(starts[rows] - (ends - sizes), sizes) + np.arange(sizes.sum())
        near = np.repeat(near, sizes)
    if len(living):
        rows, near = rows[living[rows]], near[living[rows]]
    turned = ids[rows] - turn
    order = np.lexsort((turned, near))
    return near[order], turned[order]
