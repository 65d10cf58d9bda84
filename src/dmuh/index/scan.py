"""Compiled search over distinct codes: a scan that keeps what may still be among the k nearest.

Equal distances are in the order of turned ids: a number that the query decides is subtracted from all (see `shuffle`).
The passes release the interpreter's lock and take a range of queries, so that threads can share the work.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount

_CHUNK = 8192  # codes that stay in the cache while a block of queries passes over them
_BLOCK = 16  # queries in such a block
_SIGN = np.int64(-(2**63))

Array = NDArray[Any]


@compiled(inline="always")
def distance(words: Array, j: int, queries: Array, i: int) -> Any:
    """Return the Hamming distance of code j and query i."""
    total = popcount(words[0, j] ^ queries[0, i])
    for w in range(1, words.shape[0]):
        total += popcount(words[w, j] ^ queries[w, i])
    return total


@compiled()
def nearest(
    words: Array, starts: Array, ids: Array, alive: Array, living: Array, queries: Array, first: int, last: int,
    n_bits: int, turns: Array, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries first…last, in the order of (distance, turned id).

    words      (w, c) distinct codes
    starts     int64 (c + 1,) where the ids of each code begin in `ids`, or empty: one id per code
    ids        int64 (n,), ascending for each code
    alive      int64 (c,) how many ids of a code may be found, and living bool (n,) which, or both empty: all
    turns      int64 (q,) what is subtracted from ids, which may overflow: the order of ties (see `shuffle`)
    distances  int32 (q, k) and found int64 (q, k) are filled, with turned ids; at least k are there to be found
    """
    n_codes, k = words.shape[1], found.shape[1]
    capacity = 4 * k + 1024
    codes = np.empty((_BLOCK, capacity), np.int64)
    away = np.empty((_BLOCK, capacity), np.int32)
    n_near = np.zeros(_BLOCK, np.int64)
    counts = np.zeros((_BLOCK, n_bits + 2), np.int64)  # ids found at each distance
    limit = np.zeros(_BLOCK, np.int64)  # what is farther cannot be among the nearest any more
    nearer = np.zeros(_BLOCK, np.int64)  # ids found below the limit
    for block in range(first, last, _BLOCK):
        for b in range(_BLOCK):
            n_near[b], limit[b], nearer[b] = 0, n_bits, 0
            for d in range(n_bits + 2):
                counts[b, d] = 0
        for begin in range(0, n_codes, _CHUNK):
            end = min(begin + _CHUNK, n_codes)
            for b in range(min(_BLOCK, last - block)):
                i = block + b
                while n_near[b] + _CHUNK > codes.shape[1]:
                    if forget(codes[b], away[b], n_near, b, limit[b]) + _CHUNK > codes.shape[1]:
                        codes, away = wider(codes), wider(away)
                n_near[b], limit[b], nearer[b] = _scan_chunk(
                    words, starts, alive, begin, end, queries, i, k, codes[b], away[b], n_near[b], counts[b], limit[b],
                    nearer[b],
                )  # fmt: skip
        for b in range(min(_BLOCK, last - block)):
            i = block + b
            order(
                starts, ids, living, codes[b], away[b], n_near[b], counts[b], limit[b], k, turns[i], distances[i],
                found[i],
            )  # fmt: skip


@compiled()
def _next_near(words: Array, query: Any, begin: int, even: int, reach: int) -> Any:
    """Return the first of the fours from `begin` in which a code is within reach, or `even` (unsigned: no checks)."""
    j = np.uintp(begin)
    while j < np.uintp(even):
        if (
            (np.int64(popcount(words[j] ^ query)) <= reach)
            | (np.int64(popcount(words[j + np.uintp(1)] ^ query)) <= reach)
            | (np.int64(popcount(words[j + np.uintp(2)] ^ query)) <= reach)
            | (np.int64(popcount(words[j + np.uintp(3)] ^ query)) <= reach)
        ):
            return np.int64(j)
        j += np.uintp(4)
    return np.int64(j)


@compiled()
def _next_near_pair(low: Array, high: Array, query: Any, other: Any, begin: int, even: int, reach: int) -> Any:
    """Return the same for codes of two words."""
    j = np.uintp(begin)
    while j < np.uintp(even):
        a, b, c = j + np.uintp(1), j + np.uintp(2), j + np.uintp(3)
        if (
            (np.int64(popcount(low[j] ^ query) + popcount(high[j] ^ other)) <= reach)
            | (np.int64(popcount(low[a] ^ query) + popcount(high[a] ^ other)) <= reach)
            | (np.int64(popcount(low[b] ^ query) + popcount(high[b] ^ other)) <= reach)
            | (np.int64(popcount(low[c] ^ query) + popcount(high[c] ^ other)) <= reach)
        ):
            return np.int64(j)
        j += np.uintp(4)
    return np.int64(j)


@compiled(inline="always")
def lowered(limit: Any, nearer: Any, counts: Array, away: Any, n: Any, k: int) -> tuple[Any, Any]:
    """Count n ids at a distance; return the limit beyond which none is needed any more, and the ids below it."""
    counts[away] += n
    if away < limit:
        nearer += n
    while nearer >= k:
        limit -= 1
        nearer -= counts[limit]
    return limit, nearer


@compiled()
def _scan_chunk(
    words: Array, starts: Array, alive: Array, begin: int, end: int, queries: Array, i: int, k: int, codes: Array,
    away: Array, n_near: int, counts: Array, limit: int, nearer: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Keep the codes begin…end that are within the limit of query i, lowering the limit as more are found."""
    even = begin + (end - begin) // 4 * 4
    j = begin
    while j < end:
        if words.shape[0] == 1:
            j = _next_near(words[0], queries[0, i], j, even, limit)
            stop = min(j + 4, end)
        elif words.shape[0] == 2:
            j = _next_near_pair(words[0], words[1], queries[0, i], queries[1, i], j, even, limit)
            stop = min(j + 4, end)
        else:
            stop = end
        while j < stop:
            d = np.int64(distance(words, j, queries, i))
            if d <= limit:
                n = n_ids(starts, alive, j)
                if n > 0:
                    codes[n_near], away[n_near] = j, d
                    n_near += 1
                    limit, nearer = lowered(limit, nearer, counts, d, n, k)
            j += 1
    return n_near, limit, nearer


@compiled(inline="always")
def n_ids(starts: Array, alive: Array, j: int | np.int64) -> Any:
    """Return how many ids of code j may be found."""
    if len(alive):
        return np.int64(alive[j])
    if len(starts):
        return starts[j + 1] - starts[j]
    return np.int64(1)


@compiled()
def forget(codes: Array, away: Array, n_near: Array, b: int, limit: int) -> Any:
    """Drop the codes beyond the limit; return how many are left."""
    left = 0
    for at in range(n_near[b]):
        if away[at] <= limit:
            codes[left], away[left] = codes[at], away[at]
            left += 1
    n_near[b] = left
    return left


@compiled()
def wider(array: Array) -> Array:
    """Return the array with more than twice its columns."""
    wide = np.empty((array.shape[0], 2 * array.shape[1] + _CHUNK), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


@compiled()
def sort(array: Array) -> None:
    """Sort in place; compiled once here rather than wherever it is used."""
    array.sort()


@compiled(allocates=False)
def first_turned(ids: Array, begin: int, end: int, turn: Any) -> Any:
    """Return where among the ascending ids begin…end the smallest is once they are turned: from there they go round."""
    start = turn ^ _SIGN  # the id that becomes the smallest number there is
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < start:
            low = middle + 1
        else:
            high = middle
    return low if low < end else begin


@compiled()
def order(
    starts: Array, ids: Array, living: Array, codes: Array, away: Array, n_near: int, counts: Array, limit: int, k: int,
    turn: Any, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Write the k nearest turned ids of the codes found: all below the limit, and the smallest at the limit."""
    place = np.zeros(limit + 2, np.int64)
    ends = np.zeros(limit + 2, np.int64)
    for d in range(limit):
        place[d + 1] = ends[d + 1] = place[d] + counts[d]
    wanted = k - place[limit]  # ids to take at the limit
    ties = np.empty(2 * wanted + 64, np.int64)
    n_ties: Any = 0
    bounded = False
    bound: Any = ids[0]
    for at in range(n_near):
        d, j = away[at], codes[at]
        if d > limit or (d == limit and wanted == 0):
            continue
        begin = starts[j] if len(starts) else j
        end = starts[j + 1] if len(starts) else j + 1
        if d < limit:
            for e in range(begin, end):
                if len(living) == 0 or living[e]:
                    found[ends[d]] = ids[e] - turn
                    ends[d] += 1
            continue
        taken, e = 0, first_turned(ids, begin, end, turn) if end - begin > 1 else begin
        for _ in range(begin, end):
            turned = ids[e] - turn
            if taken == wanted or (bounded and turned > bound):
                break
            if len(living) == 0 or living[e]:
                if n_ties == len(ties):
                    sort(ties[:n_ties])
                    n_ties, bound, bounded = wanted, ties[wanted - 1], True
                    if turned > bound:
                        break
                ties[n_ties] = turned
                n_ties += 1
                taken += 1
            e = e + 1 if e + 1 < end else begin
    sort(ties[:n_ties])
    for t in range(wanted):
        found[place[limit] + t] = ties[t]
    for d in range(limit + 1):
        last = place[d + 1] if d < limit else k
        if last - place[d] > 1:
            sort(found[place[d] : last])
        for at in range(place[d], last):
            distances[at] = d


@compiled()
def count_within(
    words: Array, starts: Array, alive: Array, queries: Array, first: int, last: int, radius: int, counts: Array
) -> None:
    """Count the ids at each distance up to the radius: counts int64 (q, radius + 1) for the queries first…last."""
    for i in range(first, last):
        for j in range(words.shape[1]):
            d = np.int64(distance(words, j, queries, i))
            if d <= radius:
                counts[i, d] += n_ids(starts, alive, j)


@compiled()
def collect_within(
    words: Array, starts: Array, ids: Array, living: Array, queries: Array, first: int, last: int, radius: int,
    place: Array, turns: Array, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Write the ids within the radius, turned, in the order of (distance, turned id).

    place int64 (q, radius + 2) says where in `found` those of each query and distance begin.
    """
    ends = np.empty(radius + 1, np.int64)
    for i in range(first, last):
        for away in range(radius + 1):
            ends[away] = place[i, away]
        for j in range(words.shape[1]):
            d = np.int64(distance(words, j, queries, i))
            if d <= radius:
                begin = starts[j] if len(starts) else j
                end = starts[j + 1] if len(starts) else j + 1
                for e in range(begin, end):
                    if len(living) == 0 or living[e]:
                        found[ends[d]] = ids[e] - turns[i]
                        ends[d] += 1
        for away in range(radius + 1):
            if place[i, away + 1] - place[i, away] > 1:
                sort(found[place[i, away] : place[i, away + 1]])
            for at in range(place[i, away], place[i, away + 1]):
                distances[at] = away
