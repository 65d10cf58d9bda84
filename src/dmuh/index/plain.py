"""Search by numpy alone, with the results of the compiled scans: for small work, which must not wait for a compiler."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Away = Callable[[int], Array]  # the distances (c,) of all codes to a query, by its position: whole numbers


def nearest(away: Away, starts: Array, ids: Array, alive: Array, living: Array, distances: Array, found: Array) -> None:
    """Find the k nearest ids of each query, in the order of (distance, id); arguments as in the compiled `nearest`."""
    n, k = found.shape
    sizes = alive if len(alive) else np.diff(starts)  # ids per code; empty: one each
    for i in range(n):
        far = away(i)
        counts = np.bincount(far, sizes) if len(sizes) else np.bincount(far)
        limit = np.searchsorted(np.cumsum(counts), k)  # the distance up to which there are k ids
        near, near_ids = _in_order(starts, ids, living, far, int(limit))
        distances[i], found[i] = near[:k], near_ids[:k]


def within(
    away: Away, starts: Array, ids: Array, living: Array, radii: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return offsets (q + 1,), distances and ids of all codes within each query's radius (q,), by (distance, id)."""
    parts = [_in_order(starts, ids, living, away(i), int(radius)) for i, radius in enumerate(radii)]
    offsets = np.concatenate([[0], np.cumsum([len(part[1]) for part in parts], dtype=np.int64)]).astype(np.int64)
    near = np.concatenate([np.empty(0, np.int32), *(part[0] for part in parts)], dtype=np.int32)
    return offsets, near, np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])


def _in_order(starts: Array, ids: Array, living: Array, away: Array, limit: int) -> tuple[Array, NDArray[np.int64]]:
    """Return distance and id of all ids whose code is at most `limit` away (c,), by (distance, id)."""
    rows = np.flatnonzero(away <= limit)
    near = away[rows]
    if len(starts):
        sizes = starts[rows + 1] - starts[rows]
        ends = np.cumsum(sizes)
        rows = np.repeat(starts[rows] - (ends - sizes), sizes) + np.arange(sizes.sum())
        near = np.repeat(near, sizes)
    if len(living):
        rows, near = rows[living[rows]], near[living[rows]]
    order = np.lexsort((ids[rows], near))
    return near[order], ids[rows[order]]
