"""Compiled search by weighted distances among codes with several rows of levels each (see `weighing`, `soft_nearest`).

The rows of a code stand the surest first. A row lacks u steps to the highest level, over all of its bits. Where a bit
agrees with the query, each costs what it weighs; where it differs, none does, but the code's weight has all of them in
it. So a row of a code that differs in D bits costs at least the u - (L - 1)·D lightest steps more than its code, or the
u lightest more than its code by the weights without the steps; and so do all rows after it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, lowest_one, popcount
from dmuh.index.keeping import make_room, n_ids
from dmuh.index.scan import ONE
from dmuh.index.soft_coarse import next_light, tangent
from dmuh.index.soft_scan import weigh_levels
from dmuh.index.soft_whole import PART, next_part

PIECE = 256  # rows of levels that are weighed together
_FEW = 6  # rows that are weighed one by one

Array = NDArray[Any]


@compiled()
def sum_lightest(weights: Array, i: int, steps: Array, b: int) -> None:
    """Set steps[b] (n + 1,) to the sums of the lightest 0 … n of all weights[i] but those of the first group."""
    n_such = np.zeros(64, np.int64)
    for group in range(1, weights.shape[1]):
        for bit in range(weights.shape[2]):
            n_such[weights[i, group, bit]] += 1
    at = 0
    for weight in range(64):
        for _ in range(n_such[weight]):
            steps[b, at + 1] = steps[b, at] + weight
            at += 1


@compiled(inline="always")
def scan_rows(
    words: Array, levels: Array, graded: Any, starts: Array, ids: Array, alive: Array, living: Array, begin: int,
    end: int, queries: Array, masks: Array, turns: Array, i: int, k: int, entries: Array, away: Array, b: int,
    n_near: Array, counts: Array, limit: Array, nearer: Array, coarse: Array, worth: Array, steps: Array, sums: Array,
    weighed: Array,
) -> None:  # fmt: skip
    """Keep the rows of the codes begin…end that are within the limit of query i, lowering it.

    graded  rows int64 (c + 1,) where the rows of each code begin, unsure uint16 (c,) how many steps its surest lacks
    steps   of each query of the block what `sum_lightest` sets
    """
    rows, unsure = graded
    run, known, slope, less = begin, np.int64(-1), np.int64(0), np.int64(0)
    while run < end:
        if limit[b] != known:
            known = limit[b]
            slope, less = tangent(steps[b], known // 2)
        run, hits = next_light(
            words, levels, unsure, run, end, queries, i, coarse, worth, b, slope, known + less, sums
        )  # fmt: skip
        while hits:
            j = run + np.int64(lowest_one(hits))
            hits &= hits - ONE
            d = weighed_one(words, j, 0, queries, masks, i)
            spared = _spared(words, levels, j, queries, i)
            if d + steps[b, max(np.int64(unsure[j]) - spared, 0)] <= limit[b]:
                _visit_rows(
                    words, levels, starts, ids, alive, living, j, d, spared, rows[j], rows[j + 1], queries, masks,
                    turns, i, k, entries, away, b, n_near, counts, limit, nearer, steps, weighed,
                )  # fmt: skip
        run += RUN


@compiled(inline="always")
def weighed_one(words: Array, j: int, skipped: int, queries: Array, masks: Array, i: int) -> Any:
    """Return the weighted distance of column j of words (r, c) to query i, of whose words some are skipped."""
    total = np.int64(0)
    for row in range(words.shape[0]):
        x = words[row, j] ^ queries[i, skipped + row]
        for digit in range(masks.shape[2]):
            total += np.int64(popcount(x & masks[i, skipped + row, digit])) << digit
    return total


@compiled(inline="always")
def keep(
    j: int, d: Any, starts: Array, alive: Array, k: int, entries: Array, away: Array, b: int, n_near: Array,
    counts: Array, limit: Array, nearer: Array,
) -> None:  # fmt: skip
    """Keep a row at a distance within the limit, and lower the limit."""
    n = n_ids(starts, alive, j)
    if n > 0:
        entries[b, n_near[b]], away[b, n_near[b]] = j, d
        n_near[b] += 1
        counts[b, d] += n
        if d < limit[b]:
            nearer[b] += n
        while nearer[b] >= k:
            limit[b] -= 1
            nearer[b] -= counts[b, limit[b]]


@compiled(inline="always")
def _visit_rows(
    words: Array, levels: Array, starts: Array, ids: Array, alive: Array, living: Array, j: int, bound: Any,
    spared: Any, row: int, stop: int, queries: Array, masks: Array, turns: Array, i: int, k: int,
    entries: Array, away: Array, b: int, n_near: Array, counts: Array, limit: Array, nearer: Array, steps: Array,
    weighed: Array,
) -> None:  # fmt: skip
    """Keep the rows row…stop of code j, which is `bound` away, as long as others can be within the limit."""
    while row < stop:
        piece = min(row + PIECE, stop)
        if n_near[b] + PIECE > entries.shape[1]:
            make_room(starts, ids, living, entries[b], away[b], n_near, b, limit[b], k - nearer[b], turns[i])
        n = piece - row
        if n <= _FEW:
            for at in range(n):
                weighed[at] = weighed_one(levels, row + at, words.shape[0], queries, masks, i)
        else:  # whole runs, into the next code's rows: the rest of a run would be weighed one by one
            whole = min(row + -(-n // RUN) * RUN, levels.shape[1])
            weigh_levels(levels, row, whole, queries[i], masks[i], False, weighed, 0)
        part = 0 if n <= _FEW else next_part(weighed, 0, n, limit[b] - bound)
        while part < n:
            for at in range(part, min(part + PART, n)):
                d = bound + np.int64(weighed[at])
                if d <= limit[b]:
                    keep(row + at, d, starts, alive, k, entries, away, b, n_near, counts, limit, nearer)
            part = next_part(weighed, part + PART, n, limit[b] - bound)
        if piece < stop:
            lacking = _below(words, levels, j, piece, steps.shape[1] - 1)
            if bound + steps[b, max(lacking - spared, 0)] > limit[b]:
                return
        row = piece


@compiled(inline="always")
def _spared(words: Array, levels: Array, j: int, queries: Array, i: int) -> Any:
    """Return how many steps of levels of code j do not cost: those of bits in which it differs from query i."""
    d: Any = 0
    for w in range(words.shape[0]):
        d += np.int64(popcount(words[w, j] ^ queries[i, w]))
    return d * (levels.shape[0] // words.shape[0])


@compiled(inline="always")
def _below(words: Array, levels: Array, j: int, row: int, n: Any) -> Any:
    """Return how many of n bits of a row of code j are below a level."""
    total: Any = n
    for r in range(levels.shape[0]):
        total -= np.int64(popcount(levels[r, row] ^ words[r % words.shape[0], j]))
    return total
