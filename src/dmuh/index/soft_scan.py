"""Compiled search by weighted distances: codes are weighed many at a time, and few of them are looked at one by one.

What the weights are, and which rows of words a code has, is said in `weighing`. The loops over a chunk of codes have
no branch and are made of and, popcount and add, so that they become vector instructions.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount
from dmuh.index.graded import RUN
from dmuh.index.scan import forget, lowered, n_ids, order, wider
from dmuh.index.weighing import DIGITS

CHUNK = 4096  # codes that are weighed together, and stay in the cache while a block of queries passes over them
BLOCK = 16  # queries in such a block

PART = 16  # the same within a run where one is

Array = NDArray[Any]


assert DIGITS == 6, "digits are written out below, so that their masks stay in registers"


@compiled(inline="always")
def four(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the sum of four binary digits over the ones of x, masks from the lowest digit up."""
    total = popcount(x & d)
    total = total + total + popcount(x & c)
    total = total + total + popcount(x & b)
    return total + total + popcount(x & a)


@compiled(inline="always")
def five(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Return the sum of five binary digits."""
    total = four(x, b, c, d, e)
    return total + total + popcount(x & a)


@compiled(inline="always")
def six(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Return the sum of six binary digits."""
    total = five(x, b, c, d, e, f)
    return total + total + popcount(x & a)


@compiled(allocates=False)
def weigh(
    rows: Array, r: int, begin: int, n: int, query: Array, masks: Array, at: int, first: bool, out: Array, to: int
) -> None:
    """Add the weighted distances of n words of a row, from `begin` on, to `out` int32 from `to` on.

    They are those to the word `at` of a query (rows,), by the masks (rows, DIGITS) there; the first row sets `out`.

    Places are unsigned, here and below: numba would look for negative ones, and take the words one by one. Arrays are
    not cut, which takes longer than it takes to weigh a few.
    """
    row, j, o, last = np.uintp(r), np.uintp(begin), np.uintp(to), np.uintp(n)
    word = query[at]
    a, b, c, d, e, f = masks[at, 0], masks[at, 1], masks[at, 2], masks[at, 3], masks[at, 4], masks[at, 5]
    if f != 0 and first:
        for k in range(last):
            out[o + k] = np.int32(six(rows[row, j + k] ^ word, a, b, c, d, e, f))
    elif f != 0:
        for k in range(last):
            out[o + k] += np.int32(six(rows[row, j + k] ^ word, a, b, c, d, e, f))
    elif e != 0 and first:
        for k in range(last):
            out[o + k] = np.int32(five(rows[row, j + k] ^ word, a, b, c, d, e))
    elif e != 0:
        for k in range(last):
            out[o + k] += np.int32(five(rows[row, j + k] ^ word, a, b, c, d, e))
    elif first:
        for k in range(last):
            out[o + k] = np.int32(four(rows[row, j + k] ^ word, a, b, c, d))
    else:
        for k in range(last):
            out[o + k] += np.int32(four(rows[row, j + k] ^ word, a, b, c, d))


@compiled(inline="always")
def weigh_codes(words: Array, begin: int, end: int, query: Array, masks: Array, out: Array, to: int) -> None:
    """Set `out` from `to` on to the weighted distances of the codes begin…end of words (w, c)."""
    for r in range(words.shape[0]):
        weigh(words, r, begin, end - begin, query, masks, r, r == 0, out, to)


@compiled(inline="always")
def weigh_levels(
    levels: Array, begin: int, end: int, query: Array, masks: Array, add: bool, out: Array, to: int
) -> None:
    """Set `out` from `to` on to those of level rows (r, n), which are a query's last, or add them to what is there."""
    skipped = len(query) - levels.shape[0]
    for r in range(levels.shape[0]):
        weigh(levels, r, begin, end - begin, query, masks, skipped + r, r == 0 and not add, out, to)


@compiled(inline="always")
def weigh_one(levels: Array, e: int, query: Array, masks: Array) -> Any:
    """Return what the levels of one id add to the distance of its code."""
    skipped = len(query) - levels.shape[0]
    total = np.int32(0)
    for r in range(levels.shape[0]):
        at = skipped + r
        x = levels[r, e] ^ query[at]
        total += np.int32(five(x, masks[at, 0], masks[at, 1], masks[at, 2], masks[at, 3], masks[at, 4]))
    return total


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
def nearest_soft(
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
