"""Compiled search by Hamming distance, in cells (see `cells`).

A query first looks into the cell whose centre is nearest, then into the next ones until it has k ids, and at last
wherever something may be as near as these. Codes are compared 64 at a time, without a branch, so that the loop becomes
vector instructions. Passes release the interpreter's lock and take a range of queries, so that threads can share the
work; queries in a row that are near the same centre find its codes in the cache.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, lowest_one, popcount
from dmuh.index.keeping import BLOCK, CHUNK, forget, n_ids, order, wider

_FIRST = 2  # how much farther than the nearest centre the next ones are; then twice as far, and so on
VISITED = np.int32(2**30)  # the distance of a centre whose cell is done with
_ALL, ONE = np.uint64(2**64 - 1), np.uint64(1)

Array = NDArray[Any]


@compiled()
def nearest(
    words: Array, centres: Array, begins: Array, ends: Array, shortest: Array, longest: Array, starts: Array,
    ids: Array, alive: Array, living: Array, queries: Array, turns: Array, asked: Array, first: int, last: int,
    n_bits: int, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries asked[first…last], in the order of (distance, turned id).

    words      (w, c) distinct codes in cells (see `Cells`): centres (w, m), begins and ends int64 (m, n_bits + 1),
               shortest and longest int32 (m,)
    starts     int64 (c + 1,) where the ids of each code begin in `ids`, or empty: one id per code
    ids        int64 (n,), ascending for each code
    alive      int64 (c,) how many ids of a code may be found, and living bool (n,) which, or both empty: all
    queries    (q, w), asked int64 (q,) the order in which they are searched
    turns      int64 (q,) what is subtracted from ids, which may overflow: the order of ties (see `shuffle`)
    distances  int32 (q, k) and found int64 (q, k) are filled, with turned ids; at least k are there to be found
    """
    k, m = found.shape[1], centres.shape[1]
    n_runs, width = -(-m // RUN), min(BLOCK, last - first)
    codes = np.empty((width, 4 * k + 2 * CHUNK), np.int64)  # those that are kept
    away = np.empty((width, 4 * k + 2 * CHUNK), np.int32)
    n_near = np.zeros(width, np.int64)
    counts = np.zeros((width, n_bits + 2), np.int64)  # ids found at each distance
    limit = np.zeros(width, np.int64)  # what is farther cannot be among the nearest any more
    nearer = np.zeros(width, np.int64)  # ids found below the limit
    far = np.full((width, n_runs * RUN), VISITED)  # how far the centres are
    least = np.full((width, n_runs * RUN), VISITED)  # and the codes of their cells, at least
    wanted = np.zeros((width, n_runs), np.uint64)  # cells to be visited, as bits
    for block in range(first, last, BLOCK):
        size = min(BLOCK, last - block)
        n_near[:], limit[:], nearer[:], counts[:] = 0, n_bits, 0, 0
        for b in range(size):
            _measure(centres, queries, asked[block + b], shortest, longest, far, least, b)
        step, unsettled = 0, size
        while True:  # until all queries have k ids, and once more for all that may matter
            final = unsettled == 0
            for b in range(size):
                upto = np.int64(n_bits)
                if not final:
                    lacking = nearer[b] + counts[b, limit[b]] < k
                    upto = np.int64(far[b, :m].min()) + step if lacking else np.int64(-1)
                want(far, least, b, upto, limit[b], wanted)
            codes, away = _visit(
                words, begins, ends, starts, alive, queries, asked, block, size, k, n_bits, codes, away, n_near,
                counts, limit, nearer, far, wanted,
            )  # fmt: skip
            if final:
                break
            step, unsettled = step + step if step else _FIRST, 0
            for b in range(size):
                unsettled += nearer[b] + counts[b, limit[b]] < k
        for b in range(size):
            i = asked[block + b]
            order(
                starts, ids, living, codes[b], away[b], n_near[b], counts[b], limit[b], k, turns[i], distances[i],
                found[i],
            )  # fmt: skip


@compiled(allocates=False)
def _measure(
    centres: Array, queries: Array, i: int, shortest: Array, longest: Array, far: Array, least: Array, b: int
) -> None:
    """Set far[b] int32 (≥ m,) to how far the centres (w, m) are from query i, least[b] to how far their codes are."""
    row = np.uintp(b)
    for w in range(centres.shape[0]):
        word, at = queries[i, w], np.uintp(w)
        for c in range(np.uintp(centres.shape[1])):
            d = np.int32(popcount(centres[at, c] ^ word))
            far[row, c] = d if w == 0 else far[row, c] + d
    for c in range(np.uintp(centres.shape[1])):
        least[row, c] = max(far[row, c] - longest[c], shortest[c] - far[row, c])


@compiled(allocates=False)
def want(far: Array, least: Array, b: int, upto: Any, reach: Any, wanted: Array) -> None:
    """Set wanted[b] to the cells, as bits, whose centres are at most `upto` far and whose codes may be within reach."""
    row, most, near = np.uintp(b), np.int32(upto), np.int32(reach)
    for run in range(wanted.shape[1]):
        chosen, at = np.uint64(0), np.uintp(run * RUN)
        for c in range(RUN):
            cell = at + np.uintp(c)
            may = (far[row, cell] <= most) & (least[row, cell] <= near)
            chosen |= np.uint64(may) << np.uint64(c)
        wanted[b, run] = chosen


@compiled()
def _visit(
    words: Array, begins: Array, ends: Array, starts: Array, alive: Array, queries: Array, asked: Array, block: int,
    size: int, k: int, n_bits: int, codes: Array, away: Array, n_near: Array, counts: Array, limit: Array,
    nearer: Array, far: Array, wanted: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Scan the cells that the queries of a block want, chunk by chunk; return `codes` and `away`, wider if need be."""
    for run in range(wanted.shape[1]):
        of_any = np.uint64(0)
        for b in range(size):
            of_any |= wanted[b, run]
        while of_any:
            bit = lowest_one(of_any)
            of_any &= of_any - ONE
            cell = np.int64(run * RUN) + np.int64(bit)
            for chunk in range(begins[cell, 0], ends[cell, n_bits], CHUNK):
                for b in range(size):
                    if not wanted[b, run] >> bit & ONE:
                        continue
                    low, high = max(far[b, cell] - limit[b], 0), min(far[b, cell] + limit[b], n_bits)
                    begin, end = max(begins[cell, low], chunk), min(ends[cell, high], chunk + CHUNK)
                    if begin >= end:
                        continue
                    while n_near[b] + end - begin > codes.shape[1]:
                        if forget(codes[b], away[b], n_near, b, limit[b]) + end - begin > codes.shape[1]:
                            codes, away = wider(codes), wider(away)
                    _scan(
                        words, starts, alive, begin, end, queries, asked[block + b], k, codes, away, b, n_near,
                        counts, limit, nearer,
                    )  # fmt: skip
            for b in range(size):
                if wanted[b, run] >> bit & ONE:
                    far[b, cell] = VISITED
    return codes, away


@compiled(allocates=False)
def _scan(
    words: Array, starts: Array, alive: Array, begin: int, end: int, queries: Array, i: int, k: int, codes: Array,
    away: Array, b: int, n_near: Array, counts: Array, limit: Array, nearer: Array,
) -> None:  # fmt: skip
    """Keep the codes begin…end that are within the limit of query i, lowering the limit as more are found."""
    reach, below, n_kept = limit[b], nearer[b], n_near[b]
    run = begin
    while run < end:
        run, hits = next_near(words, run, end, queries, i, reach)
        while hits:
            j = run + np.int64(lowest_one(hits))
            hits &= hits - ONE
            d = distance(words, j, queries, i)
            if d <= reach:
                n = n_ids(starts, alive, j)
                if n > 0:
                    codes[b, n_kept], away[b, n_kept] = j, d
                    n_kept += 1
                    counts[b, d] += n
                    if d < reach:
                        below += n
                    while below >= k:
                        reach -= 1
                        below -= counts[b, reach]
        run += RUN
    limit[b], nearer[b], n_near[b] = reach, below, n_kept


@compiled(inline="always")
def distance(words: Array, j: Any, queries: Array, i: Any) -> Any:
    """Return the Hamming distance of code j of words (w, c) and query i of (q, w)."""
    total = np.int64(popcount(words[0, j] ^ queries[i, 0]))
    for w in range(1, words.shape[0]):
        total += np.int64(popcount(words[w, j] ^ queries[i, w]))
    return total


@compiled(allocates=False)
def next_near(words: Array, begin: int, end: int, queries: Array, i: int, reach: Any) -> tuple[Any, Any]:
    """Return where the next 64 codes begin of which some are within reach of query i, and which, as bits.

    From the end on there are none. Places are unsigned: numba would look for negative ones, and compare one by one.
    """
    at, whole = np.uintp(begin), np.uintp(min(end, max(words.shape[1] - RUN + 1, 0)))
    most, hits, zero, one = np.uint64(reach), np.uint64(0), np.uintp(0), np.uintp(1)
    if words.shape[0] == 1:
        word = queries[i, 0]
        while at < whole and hits == 0:
            for j in range(RUN):
                near = np.uint64(popcount(words[zero, at + np.uintp(j)] ^ word)) <= most
                hits |= np.uint64(near) << np.uint64(j)
            at += np.uintp(RUN)
    elif words.shape[0] == 2:
        low, high = queries[i, 0], queries[i, 1]
        while at < whole and hits == 0:
            for j in range(RUN):
                d = popcount(words[zero, at + np.uintp(j)] ^ low) + popcount(words[one, at + np.uintp(j)] ^ high)
                hits |= np.uint64(np.uint64(d) <= most) << np.uint64(j)
            at += np.uintp(RUN)
    else:
        while at < whole and hits == 0:
            for j in range(RUN):
                near = np.uint64(distance(words, np.int64(at) + j, queries, i)) <= most
                hits |= np.uint64(near) << np.uint64(j)
            at += np.uintp(RUN)
    run: Any = np.int64(at)
    if hits:
        run -= RUN
    elif run < end:  # fewer than a run are left of all codes: each is looked at
        hits = _ALL
    if end - run < RUN:
        left: Any = max(end - run, 0)
        hits &= (ONE << np.uint64(left)) - ONE
    return run, hits
