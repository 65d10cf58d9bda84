"""Compiled search by weighted distances, in cells (see `cells`, and `weighing` for what is weighed).

As in `scan`, a query looks into the nearest cell, into the next ones until it has k ids, and at last wherever something
may be as near. Codes are bounded from below 64 at a time (see `soft_coarse`), and those that may matter are weighed.
These are codes without levels; those with levels stand in shells (see `shell_search`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, lowest_one, popcount
from dmuh.index.keeping import BLOCK, CHUNK, lowered_from, make_room, n_ids, order
from dmuh.index.scan import ONE, VISITED, want
from dmuh.index.soft_coarse import choose_masks, next_light
from dmuh.index.soft_scan import weigh_codes, weighed_one

_FIRST = 64  # how much farther than the nearest centre the next ones are; then twice as far, and so on
_SMALL = 96  # codes of a cell up to which its rings are not looked at

Array = NDArray[Any]


@compiled()
def nearest_soft(
    words: Array, centres: Array, begins: Array, ends: Array, shortest: Array, longest: Array, starts: Array,
    ids: Array, alive: Array, living: Array, queries: Array, masks: Array, weights: Array, turns: Array, asked: Array,
    first: int, last: int, most: int, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries asked[first…last] by weighted distance, equal ones by turned id.

    words       (w, c) codes in cells (see `Cells`): centres (w, m), begins and ends int64 (m, n_bits + 1), shortest and
                longest int32 (m,)
    queries     (q, w), masks (q, w, DIGITS), weights uint8 (q, 1, n_bits)
    most        the largest distance that there is
    The others are those of `scan.nearest`.
    """
    k, m, n_bits = found.shape[1], centres.shape[1], begins.shape[1] - 1
    n_runs, width = -(-m // RUN), min(BLOCK, last - first)
    entries = np.empty((width, 2 * k + 2 * CHUNK), np.int64)  # codes that are kept
    away = np.empty((width, 2 * k + 2 * CHUNK), np.int32)
    n_near = np.zeros(width, np.int64)
    counts = np.zeros((width, most + 2), np.int64)
    limit = np.zeros(width, np.int64)
    nearer = np.zeros(width, np.int64)
    farthest = np.zeros(width, np.int64)  # of all that was ever kept
    far = np.full((width, n_runs * RUN), VISITED)
    least = np.full((width, n_runs * RUN), VISITED)  # what a code of each cell is away at least
    wanted = np.zeros((width, n_runs), np.uint64)
    coarse = np.zeros((width, queries.shape[1], 3), words.dtype)
    units = np.zeros(width, np.int64)
    light = np.zeros((width, n_bits), np.int64)  # bits by their weight, the lightest first
    sums = np.zeros(RUN, words.dtype)
    for block in range(first, last, BLOCK):
        size = min(BLOCK, last - block)
        n_near[:], limit[:], nearer[:], farthest[:] = 0, most, 0, 0
        for b in range(size):
            i = asked[block + b]
            units[b] = choose_masks(weights, i, coarse, b)
            _measure(centres, queries[i], masks[i], weights[i, 0], shortest, longest, light[b], far[b], least[b])
        step, unsettled = 0, size
        while True:  # until all queries have k ids, and once more for all that may matter
            final = unsettled == 0
            for b in range(size):
                upto = np.int64(most)
                if not final:
                    lacking = nearer[b] + counts[b, limit[b]] < k
                    upto = np.int64(far[b, :m].min()) + step if lacking else np.int64(-1)
                want(far, least, b, upto, limit[b], wanted)
            _visit(
                words, centres, begins, ends, starts, ids, alive, living, queries, masks, weights, turns, asked,
                block, size, k, entries, away, n_near, counts, limit, nearer, farthest, far, wanted, coarse, units,
                light, sums,
            )  # fmt: skip
            if final:
                break
            step, unsettled = step + step if step else _FIRST, 0
            for b in range(size):
                unsettled += nearer[b] + counts[b, limit[b]] < k
        for b in range(size):
            i = asked[block + b]
            order(
                starts, ids, living, entries[b], away[b], n_near[b], counts[b], limit[b], k, turns[i], distances[i],
                found[i],
            )  # fmt: skip
            counts[b, : farthest[b] + 1] = 0


@compiled()
def _measure(
    centres: Array, query: Array, masks: Array, weights: Array, shortest: Array, longest: Array, light: Array,
    far: Array, least: Array,
) -> None:  # fmt: skip
    """Weigh the centres, bound the codes of each cell from below, and sort the bits by weight.

    A code differs from its centre in r bits, so that it is nearer than that by the r heaviest bits at most; and it
    differs from the query in |D - r| bits or more, where the centre does in D.
    """
    n_bits, m = len(weights), centres.shape[1]
    place = np.zeros(65, np.int64)
    for bit in range(n_bits):
        place[weights[bit] + 1] += 1
    for weight in range(64):
        place[weight + 1] += place[weight]
    for bit in range(n_bits):
        light[place[weights[bit]]] = bit
        place[weights[bit]] += 1
    lightest, heaviest = np.zeros(n_bits + 1, np.int32), np.zeros(n_bits + 1, np.int32)
    for n in range(n_bits):
        lightest[n + 1] = lightest[n] + weights[light[n]]
        heaviest[n + 1] = heaviest[n] + weights[light[n_bits - 1 - n]]
    weigh_codes(centres, 0, m, query, masks, far, 0)
    for cell in range(m):
        d = np.int64(0)
        for w in range(centres.shape[0]):
            d += np.int64(popcount(centres[w, cell] ^ query[w]))
        apart = max(d - longest[cell], shortest[cell] - d, 0)
        least[cell] = max(far[cell] - heaviest[longest[cell]], lightest[apart])


@compiled(allocates=False)
def _visit(
    words: Array, centres: Array, begins: Array, ends: Array, starts: Array, ids: Array, alive: Array, living: Array,
    queries: Array, masks: Array, weights: Array, turns: Array, asked: Array, block: int, size: int, k: int,
    entries: Array, away: Array, n_near: Array, counts: Array, limit: Array, nearer: Array, farthest: Array,
    far: Array, wanted: Array,
    coarse: Array, units: Array, light: Array, sums: Array,
) -> None:  # fmt: skip
    """Look into the cells that the queries of a block want, chunk by chunk."""
    for run in range(wanted.shape[1]):
        of_any = np.uint64(0)
        for b in range(size):
            of_any |= wanted[b, run]
        while of_any:
            bit = lowest_one(of_any)
            of_any &= of_any - ONE
            cell: Any = np.int64(run * RUN) + np.int64(bit)
            whole, stop = begins[cell, 0], ends[cell, ends.shape[1] - 1]
            ringed = stop - whole > _SMALL and centres.shape[1] > 1
            for chunk in range(whole, stop, CHUNK):
                for b in range(size):
                    if not wanted[b, run] >> bit & ONE:
                        continue
                    i = asked[block + b]
                    begin, end = whole, stop
                    if ringed:
                        begin, end = _matters(
                            centres, cell, begins, ends, queries, i, weights, light, b, far[b, cell], limit[b]
                        )
                    begin, end = max(begin, chunk), min(end, chunk + CHUNK)
                    if begin >= end:
                        continue
                    if n_near[b] + CHUNK > entries.shape[1]:
                        make_room(
                            starts, ids, living, entries[b], away[b], n_near, b, limit[b], k - nearer[b], turns[i]
                        )
                    _scan(
                        words, starts, alive, begin, end, queries, masks, i, k, entries, away, b, n_near, counts,
                        limit, nearer, farthest, coarse, units, sums,
                    )  # fmt: skip
            for b in range(size):
                if wanted[b, run] >> bit & ONE:
                    far[b, cell] = VISITED


@compiled(inline="always")
def _matters(
    centres: Array, cell: int, begins: Array, ends: Array, queries: Array, i: int, weights: Array, light: Array, b: int,
    away: Any, reach: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return where the rings of a cell begin and end that may have codes within reach; the centre is `away`.

    A code r bits from the centre, which differs from the query in D bits, is at least as far as the lightest D - r of
    these weigh, or the lightest r - D of the others.
    """
    n_bits, per_word = weights.shape[2], centres.itemsize * 8
    d: Any = 0
    for w in range(centres.shape[0]):
        d += np.int64(popcount(centres[w, cell] ^ queries[i, w]))
    low, high, undone, done = d, d, np.int64(0), np.int64(0)
    if away <= reach:  # of all in which they differ
        low, undone = d - d, reach + 1
    for n in range(n_bits):
        bit = light[b, n]
        weight = np.int64(weights[i, 0, bit])
        if undone + weight > reach and done + weight > reach:
            break
        w, place = bit // per_word, np.uint64(bit % per_word)
        if np.uint64(centres[w, cell] ^ queries[i, w]) >> place & ONE:
            if undone + weight <= reach:
                undone += weight
                low -= 1
        elif done + weight <= reach:
            done += weight
            high += 1
    return begins[cell, low], ends[cell, high]


@compiled(inline="always")
def _scan(
    words: Array, starts: Array, alive: Array, begin: int, end: int, queries: Array, masks: Array, i: int, k: int,
    entries: Array, away: Array, b: int, n_near: Array, counts: Array, limit: Array, nearer: Array, farthest: Array,
    coarse: Array, units: Array, sums: Array,
) -> None:  # fmt: skip
    """Keep the codes begin…end that are within the limit of query i, lowering it."""
    run, reach, below, highest = begin, limit[b], nearer[b], farthest[b]
    while run < end:
        run, hits = next_light(words, run, end, queries, i, coarse, b, reach // units[b], sums)
        while hits:
            j = run + np.int64(lowest_one(hits))
            hits &= hits - ONE
            d = weighed_one(words, j, 0, queries, masks, i)
            n = n_ids(starts, alive, j) if d <= reach else np.int64(0)
            if n > 0:
                entries[b, n_near[b]], away[b, n_near[b]] = j, d
                n_near[b] += 1
                reach, below, highest = lowered_from(reach, below, highest, counts, b, d, n, k)
        run += RUN
    limit[b], nearer[b], farthest[b] = reach, below, highest
