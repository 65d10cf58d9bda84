"""Compiled: codes that may be among the k nearest are kept while a limit falls, and put in order at the end.

Equal distances are in the order of turned ids: a number that the query decides is subtracted from all (see `shuffle`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled

CHUNK = 4096  # codes that stay in the cache while a block of queries passes over them
BLOCK = 16  # queries in such a block
_FEW, _MANY = 12, 512  # numbers that are sorted in simpler ways
_NEAR = 16  # how far ids are from where they are looked for first
_SIGN = np.int64(-(2**63))

Array = NDArray[Any]


@compiled(inline="always")
def n_ids(starts: Array, alive: Array, j: Any) -> Any:
    """Return how many ids of code j may be found."""
    if len(alive):
        return np.int64(alive[j])
    if len(starts):
        return starts[j + 1] - starts[j]
    return np.int64(1)


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


@compiled(inline="always")
def lowered_from(
    limit: Any, nearer: Any, highest: Any, counts: Array, b: int, away: Any, n: Any, k: int
) -> tuple[Any, Any, Any]:
    """Do as `lowered` for counts[b], where limits begin high above all that is found; return the highest found too."""
    row, highest = np.uintp(b), max(highest, away)
    counts[row, np.uintp(away)] += n
    if away < limit:
        nearer += n
    if nearer >= k:
        limit = min(limit, highest + 1)
        while nearer >= k:
            limit -= 1
            nearer -= counts[row, np.uintp(limit)]
    return limit, nearer, highest


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
    wide = np.empty((array.shape[0], 2 * array.shape[1] + CHUNK), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


@compiled()
def sort(array: Array) -> None:
    """Sort whole numbers in place; few of them by their share of the range, which suits shuffled ids."""
    n = len(array)
    if n <= _FEW:
        insert(array, 0, n)
        return
    if n > _MANY:
        array.sort()
        return
    least, most = array.min(), array.max()
    span, shift = np.uint64(most) - np.uint64(least), np.uint64(0)
    while span >> shift >= np.uint64(n):
        shift += np.uint64(1)
    ends = np.zeros(n + 1, np.int64)
    for number in array:
        ends[np.int64((np.uint64(number) - np.uint64(least)) >> shift) + 1] += 1
    for at in range(n):
        ends[at + 1] += ends[at]
    copied = array.copy()
    for number in copied:
        slot = np.int64((np.uint64(number) - np.uint64(least)) >> shift)
        array[ends[slot]] = number
        ends[slot] += 1
    insert(array, 0, n)


@compiled(allocates=False)
def insert(array: Array, begin: int, end: int) -> None:
    """Sort in place what from `begin` to `end` is few, or all but sorted."""
    for last in range(begin + 1, end):
        number, at = array[last], last
        while at > begin and array[at - 1] > number:
            array[at] = array[at - 1]
            at -= 1
        array[at] = number


@compiled(allocates=False)
def first_turned(ids: Array, begin: int, end: int, turn: Any) -> Any:
    """Return where among the ascending ids begin…end the smallest is once they are turned: from there they go round."""
    start = turn ^ _SIGN  # the id that becomes the smallest number there is
    low: Any = begin
    high: Any = end
    if end - begin > _NEAR:  # ids are spread evenly: it is near where a share of all numbers is as large
        guess = begin + np.int64((end - begin) * (np.float64(turn) * 2.0**-64 + (1.0 if turn < 0 else 0.0)))
        step = _NEAR
        if guess < end and ids[guess] < start:
            while guess + step < end and ids[guess + step] < start:
                guess += step
                step += step
            low, high = guess + 1, min(guess + step, end)
        else:
            high = min(guess, end)
            while high - step >= begin and ids[high - step] >= start:
                high -= step
                step += step
            low = max(high - step, begin)
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
    for at in range(n_near):
        d, j = away[at], codes[at]
        if d < limit:
            for e in range(starts[j] if len(starts) else j, starts[j + 1] if len(starts) else j + 1):
                if len(living) == 0 or living[e]:
                    found[ends[d]] = ids[e] - turn
                    ends[d] += 1
    wanted = k - place[limit]  # ids to take at the limit
    if wanted:
        ties = np.empty(2 * wanted + 64, np.int64)
        # ids are spread evenly, so that a share of all numbers holds as large a share of the ids
        share = (wanted + 4 * np.sqrt(wanted) + 8) / counts[limit]
        bound = np.int64(2.0**62 * min(share, 1.0) * 3.999 - 2.0**63) if share < 1.0 else np.int64(2**63 - 1)
        n = _ties(starts, ids, living, codes, away, n_near, limit, wanted, turn, bound, ties)
        if n < wanted:
            n = _ties(starts, ids, living, codes, away, n_near, limit, wanted, turn, np.int64(2**63 - 1), ties)
        sort(ties[:n])
        for t in range(wanted):
            found[place[limit] + t] = ties[t]
            distances[place[limit] + t] = limit
    for d in range(limit):
        if 1 < place[d + 1] - place[d] <= _FEW:
            insert(found, place[d], place[d + 1])  # the array is not cut, which takes longer
        elif place[d + 1] - place[d] > 1:
            sort(found[place[d] : place[d + 1]])
        for at in range(place[d], place[d + 1]):
            distances[at] = d


@compiled()
def _ties(
    starts: Array, ids: Array, living: Array, codes: Array, away: Array, n_near: int, limit: int, wanted: int,
    turn: Any, bound: Any, ties: Array,
) -> Any:  # fmt: skip
    """Collect turned ids at the limit that are at most `bound`, the `wanted` smallest among them; return how many."""
    n_ties: Any = 0
    for at in range(n_near):
        if away[at] != limit:
            continue
        j = codes[at]
        begin = starts[j] if len(starts) else j
        end = starts[j + 1] if len(starts) else j + 1
        taken, e = 0, first_turned(ids, begin, end, turn) if end - begin > 1 else begin
        for _ in range(begin, end):
            turned = ids[e] - turn
            if taken == wanted or turned > bound:
                break
            if len(living) == 0 or living[e]:
                if n_ties == len(ties):
                    sort(ties[:n_ties])
                    n_ties, bound = wanted, ties[wanted - 1]
                    if turned > bound:
                        break
                ties[n_ties] = turned
                n_ties += 1
                taken += 1
            e = e + 1 if e + 1 < end else begin
    return n_ties


@compiled()
def make_room(
    starts: Array, ids: Array, living: Array, entries: Array, away: Array, n_near: Array, b: int, limit: int,
    wanted: int, turn: Any,
) -> None:  # fmt: skip
    """Drop the codes or rows beyond the limit, and of those at it all but as many as ids are wanted, by turned ids."""
    n = forget(entries, away, n_near, b, limit)
    if 2 * n < len(entries):
        return
    n_ties = 0
    ties = np.empty(n, np.int64)
    for at in range(n):
        if away[at] == limit:
            ties[n_ties] = _smallest(starts, ids, living, entries[at], turn)
            n_ties += 1
    if n_ties <= wanted:
        return
    sort(ties[:n_ties])
    left = 0
    for at in range(n):
        if away[at] < limit or _smallest(starts, ids, living, entries[at], turn) <= ties[wanted - 1]:
            entries[left], away[left] = entries[at], away[at]
            left += 1
    n_near[b] = left


@compiled()
def _smallest(starts: Array, ids: Array, living: Array, j: int, turn: Any) -> Any:
    """Return the smallest turned id of a code or row that may be found; there is one."""
    if len(starts) == 0:
        return ids[j] - turn
    e = first_turned(ids, starts[j], starts[j + 1], turn)
    while len(living) and not living[e]:
        e = e + 1 if e + 1 < starts[j + 1] else starts[j]
    return ids[e] - turn
