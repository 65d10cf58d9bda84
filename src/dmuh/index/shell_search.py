"""Compiled search by weighted distances among rows of codes and levels, in shells.

A query looks into the shell whose first rows are near by a guess, into more until it has k ids, and then wherever
something may be as near, the lowest bound first (see `shell_bounds`). Of a shell it takes 64 rows after the other, the
surest first, until no other can be near enough.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, lowest_one, popcount
from dmuh.index.keeping import CHUNK, lowered_from, make_room, n_ids, order, sort
from dmuh.index.scan import ONE, VISITED
from dmuh.index.shell_bounds import bound_shells, differing
from dmuh.index.soft_coarse import weigh_coarsely, within_reach
from dmuh.index.soft_scan import three, weighed_one

_FEW = 8  # rows of a run up to which they are weighed one by one
_ALL = np.uint64(2**64 - 1)
_SHIFT = 32  # a bound and the number of a shell in one whole number, by which shells are sorted
_NUMBER = np.int64(2**32 - 1)

Array = NDArray[Any]


@compiled()
def nearest_in_shells(
    words: Array, levels: Array, shells: Any, starts: Array, ids: Array, alive: Array, living: Array, queries: Array,
    masks: Array, weights: Array, lower: Array, turns: Array, asked: Array, first: int, last: int, most: int,
    distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries asked[first…last] by weighted distance, equal ones by turned id.

    words    (w, m) the codes of rows, and levels (r · w, m) their level rows
    shells   what `bound_shells` takes
    starts   of the rows, as ids, alive and living are
    queries  (q, rows), masks (q, rows, DIGITS), weights uint8 (q, 1 + levels above the first, n_bits)
    lower    uint8 (q, 1, n_bits) the first weights without the steps of levels that are in them
    most     the largest distance that there is
    The others are those of `scan.nearest`.
    """
    k, n_shells, n_words, n_bits = found.shape[1], len(shells[4]), words.shape[0], lower.shape[2]
    entries = np.empty(2 * k + 2 * CHUNK, np.int64)  # rows that are kept
    away = np.empty(2 * k + 2 * CHUNK, np.int32)
    n_near = np.zeros(1, np.int64)
    counts = np.zeros((1, most + 2), np.int64)
    bases, bounds = np.empty(n_shells, np.int32), np.empty(n_shells, np.int32)
    guesses, opened = np.empty(n_shells, np.int32), np.empty(n_shells, np.int64)
    coarse = np.zeros((1, n_words, 3), words.dtype)
    bits, steps = np.zeros(n_bits + 1, np.int32), np.zeros((weights.shape[1] - 1) * n_bits + 1, np.int32)
    sums = np.empty(max(RUN, n_shells), words.dtype)
    for at in range(first, last):
        i = asked[at]
        unit = bound_shells(shells, queries, weights, lower, i, coarse, bits, steps, sums, bases, bounds, guesses)
        limit, highest = _search(
            words, levels, shells, starts, ids, alive, living, queries, masks, i, turns[i], most, k, entries, away,
            n_near, counts, bases, bounds, guesses, opened, coarse, unit, steps, sums,
        )  # fmt: skip
        order(starts, ids, living, entries, away, n_near[0], counts[0], limit, k, turns[i], distances[i], found[i])
        counts[0, : highest + 1] = 0


@compiled(allocates=False)
def _search(
    words: Array, levels: Array, shells: Any, starts: Array, ids: Array, alive: Array, living: Array, queries: Array,
    masks: Array, i: int, turn: Any, most: Any, k: int, entries: Array, away: Array, n_near: Array, counts: Array,
    bases: Array, bounds: Array, guesses: Array, opened: Array, coarse: Array, unit: Any, steps: Array,
    sums: Array,
) -> tuple[Any, Any]:  # fmt: skip
    """Keep the rows that may be among the k nearest; return the limit of these, and the farthest ever kept."""
    lacking, _, begins, runs, _, longest, _, _ = shells
    limit: Any = np.int64(most)
    nearer: Any = np.int64(0)
    highest: Any = np.int64(0)
    n_kept, n_open, at = np.int64(0), np.int64(-1), np.int64(0)
    while True:
        if nearer + counts[0, limit] < k:
            shell = _least(guesses)
        else:
            if n_open < 0:
                n_open = _open(bounds, limit, opened)
            if at == n_open or opened[at] >> _SHIFT > limit:
                n_near[0] = n_kept
                return limit, highest
            shell = np.uintp(opened[at] & _NUMBER)
            at += 1
        guesses[shell], bounds[shell] = VISITED, VISITED
        run, row, stop, own, spared = np.uintp(runs[shell]), begins[shell], begins[shell + np.uintp(1)], 0, 0
        alike = longest[shell] == 0
        if alike:  # by all weights, its rows are as far as their code, and spared the steps of bits that differ
            own = weighed_one(words, row, 0, queries, masks, i)
            spared = differing(words, row, queries, i) * (levels.shape[0] // words.shape[0])
        while row < stop:
            u = np.int64(lacking[run])
            light = np.int64(steps[np.uintp(u)])
            unspared: Any = max(u - spared, 0)
            if max(bases[shell] + light, own + steps[np.uintp(unspared)]) > limit:
                break
            if n_kept + RUN > len(entries):
                n_near[0] = n_kept
                make_room(starts, ids, living, entries, away, n_near, 0, limit, k - nearer, turn)
                n_kept = n_near[0]
            hits, few = _near(
                words, levels, row, queries, masks, i, alike, own, coarse, (limit - light) // unit, limit, sums
            )
            if stop - row < RUN:
                hits &= (ONE << np.uint64(stop - row)) - ONE
            while hits:
                bit = lowest_one(hits)
                hits &= hits - ONE
                j, d = row + np.int64(bit), np.int64(sums[np.uintp(bit)])
                if few:
                    d = weighed_one(words, j, 0, queries, masks, i)
                    d += weighed_one(levels, j, words.shape[0], queries, masks, i)
                if d <= limit:
                    m = n_ids(starts, alive, np.uintp(j))
                    if m > 0:
                        entries[np.uintp(n_kept)], away[np.uintp(n_kept)] = j, d
                        n_kept += 1
                        limit, nearer, highest = lowered_from(limit, nearer, highest, counts, 0, d, m, k)
            row += RUN
            run += np.uintp(1)


@compiled(inline="always")
def _least(guesses: Array) -> Any:
    """Return which shell has the least guess."""
    least, shell = np.int32(VISITED), np.uintp(0)
    for s in range(np.uintp(len(guesses))):
        least = min(least, guesses[s])
    while guesses[shell] != least:
        shell += np.uintp(1)
    return shell


@compiled()
def _open(bounds: Array, limit: Any, opened: Array) -> Any:
    """Write the shells that may have rows within the limit, sorted by their bounds, before these; return how many."""
    n: Any = 0
    for s in range(len(bounds)):
        if bounds[s] <= limit:
            opened[n] = np.int64(bounds[s]) << _SHIFT | s
            n += 1
    sort(opened[:n])
    return n


@compiled(inline="always")
def _near(
    words: Array, levels: Array, row: Any, queries: Array, masks: Array, i: int, alike: Any, own: Any, coarse: Array,
    reach: Any, limit: Any, sums: Array,
) -> tuple[Any, Any]:  # fmt: skip
    """Return which of 64 rows may be within the limit, as bits, and whether these are few that are not yet weighed.

    Where they are many, or have one code, which is `own` far, sums (≥ 64,) has their distances. Else their codes must
    be within reach without levels, in units of the coarse masks.
    """
    if row + RUN > words.shape[1]:  # fewer than a run are left of all rows
        return _ALL, True
    if not alike:
        weigh_coarsely(words, row, RUN, queries, i, coarse, 0, sums)
        hits = within_reach(sums, reach)
        if popcount(hits) <= _FEW:
            return hits, True
        _weigh(words, row, 0, queries, masks, i, 0, True, sums)
    _weigh(levels, row, words.shape[0], queries, masks, i, own, alike, sums)
    return within_reach(sums, limit), False


@compiled(inline="always")
def _weigh(
    rows: Array, row: Any, skipped: Any, queries: Array, masks: Array, i: int, own: Any, first: Any, sums: Array
) -> None:
    """Add the weighted distances of 64 columns of rows (r, n) to sums, which begin at `own` where these are first."""
    kind = sums.dtype.type  # sums of three digits each are cut to it: vectors of longer ones would be half as quick
    at, begin, eight = np.uintp(row), kind(own), kind(8)
    for r in range(rows.shape[0]):
        q, of = skipped + r, np.uintp(r)
        word, a, b, c = queries[i, q], masks[i, q, 0], masks[i, q, 1], masks[i, q, 2]
        d, e, f = masks[i, q, 3], masks[i, q, 4], masks[i, q, 5]
        small = d | e | f == 0  # as steps of levels mostly are
        if first and r == 0 and small:
            for j in range(np.uintp(RUN)):
                sums[j] = begin + three(rows[of, at + j] ^ word, a, b, c)
        elif first and r == 0:
            for j in range(np.uintp(RUN)):
                x = rows[of, at + j] ^ word
                sums[j] = begin + kind(three(x, a, b, c)) + kind(three(x, d, e, f)) * eight
        elif small:
            for j in range(np.uintp(RUN)):
                sums[j] += three(rows[of, at + j] ^ word, a, b, c)
        else:
            for j in range(np.uintp(RUN)):
                x = rows[of, at + j] ^ word
                sums[j] += kind(three(x, a, b, c)) + kind(three(x, d, e, f)) * eight
