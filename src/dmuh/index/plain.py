"""Search by numpy alone, with the results of the compiled scan: for small work, which must not wait for a compiler."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import distances_to

Array = NDArray[Any]


def nearest(
    words: Array, starts: Array, ids: Array, alive: Array, living: Array, queries: Array, distances: Array, found: Array
) -> None:
    """Find the k nearest ids of each query, in the order of (distance, id); arguments as in the compiled `nearest`."""
    k = found.shape[1]
    sizes = alive if len(alive) else np.diff(starts)  # ids per code; empty: one each
    for i in range(queries.shape[1]):
        away = distances_to(queries[:, i], words)
        counts = np.bincount(away, sizes) if len(sizes) else np.bincount(away)
        limit = np.searchsorted(np.cumsum(counts), k)  # the distance up to which there are k ids
        near, near_ids = _in_order(starts, ids, living, away, int(limit))
        distances[i], found[i] = near[:k], near_ids[:k]


def within(
    words: Array, starts: Array, ids: Array, living: Array, queries: Array, radius: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return offsets (q + 1,), distances and ids of all codes within the radius of each query, by (distance, id)."""
    parts = [
        _in_order(starts, ids, living, distances_to(queries[:, i], words), radius) for i in range(queries.shape[1])
    ]
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
