"""Compiled search by weighted distances over all codes, where these stand in no cells.

Codes are weighed a chunk at a time (see `soft_scan`), while a block of queries passes over it, and few of them are
looked at one by one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled
from dmuh.index.keeping import BLOCK, CHUNK, forget, lowered, n_ids, order, wider
from dmuh.index.soft_scan import weigh_codes, weigh_levels

PART = 16  # codes that are looked at where one of a run is near

Array = NDArray[Any]


@compiled(inline="always")
def any_in_run(scores: Array, begin: int, reach: int) -> Any:
    """Return whether any score of a run is at most `reach`; the run may reach beyond what was weighed."""
    hits, most, at = np.int32(0), np.int32(reach), np.uintp(begin)
    for j in range(RUN):
        hits |= np.int32(scores[at + np.uintp(j)] <= most)
    return hits != 0


@compiled(inline="always")
def any_in_part(scores: Array, begin: int, reach: int) -> Any:
    """Return the same for a part of a run."""
    hits, most, at = np.int32(0), np.int32(reach), np.uintp(begin)
    for j in range(PART):
        hits |= np.int32(scores[at + np.uintp(j)] <= most)
    return hits != 0


@compiled(inline="always")
def next_part(scores: Array, at: int, n: int, reach: int) -> Any:
    """Return where the next part begins, from `at` on, in which one of n scores may be at most `reach`; or n."""
    while at < n:
        if at % RUN == 0 and not any_in_run(scores, at, reach):
            at += RUN
        elif not any_in_part(scores, at, reach):
            at += PART
        else:
            return at
    return n


@compiled()
def nearest_scanned(
    words: Array, levels: Array, starts: Array, ids: Array, alive: Array, living: Array, queries: Array, masks: Array,
    turns: Array, first: int, last: int, most: int, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries first…last by weighted distance, in the order of (distance, turned id).

    Codes without levels (`levels` has no rows), or with one id each. Arguments are those of `scan.nearest`, beside
    levels (r, c), queries (q, rows), masks (q, rows, 5), and the largest distance that there is.
    """
    n_codes, k = words.shape[1], found.shape[1]
    codes = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int64)
    away = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int32)
    n_near = np.zeros(BLOCK, np.int64)
    counts = np.zeros((BLOCK, most + 2), np.int64)
    limit = np.zeros(BLOCK, np.int64)
    nearer = np.zeros(BLOCK, np.int64)
    scores = np.empty(CHUNK, np.int32)
    for block in range(first, last, BLOCK):
        n_near[:], limit[:], nearer[:], counts[:] = 0, most, 0, 0
        for begin in range(0, n_codes, CHUNK):
            end = min(begin + CHUNK, n_codes)
            for b in range(min(BLOCK, last - block)):
                i = block + b
                while n_near[b] + CHUNK > codes.shape[1]:
                    if forget(codes[b], away[b], n_near, b, limit[b]) + CHUNK > codes.shape[1]:
                        codes, away = wider(codes), wider(away)
                weigh_codes(words, begin, end, queries[i], masks[i], scores, 0)
                weigh_levels(levels, begin, end, queries[i], masks[i], True, scores, 0)
                n_near[b], limit[b], nearer[b] = keep(
                    scores, begin, end, starts, alive, k, codes[b], away[b], n_near[b], counts[b], limit[b], nearer[b]
                )
        for b in range(min(BLOCK, last - block)):
            i = block + b
            order(
                starts, ids, living, codes[b], away[b], n_near[b], counts[b], limit[b], k, turns[i], distances[i],
                found[i],
            )  # fmt: skip


@compiled(allocates=False)
def keep(
    scores: Array, begin: int, end: int, starts: Array, alive: Array, k: int, codes: Array, away: Array, n_near: int,
    counts: Array, limit: int, nearer: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Keep the codes begin…end whose scores are within the limit, lowering the limit as more are found."""
    n = end - begin
    part = next_part(scores, 0, n, limit)
    while part < n:
        for at in range(part, min(part + PART, n)):
            d = np.int64(scores[at])
            if d <= limit:
                m = n_ids(starts, alive, begin + at)
                if m > 0:
                    codes[n_near], away[n_near] = begin + at, d
                    n_near += 1
                    limit, nearer = lowered(limit, nearer, counts, d, m, k)
        part = next_part(scores, part + PART, n, limit)
    return n_near, limit, nearer
