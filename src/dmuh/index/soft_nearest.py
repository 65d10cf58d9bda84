"""Compiled search by weighted distances, in cells (see `cells`, and `weighing` for what is weighed).

As in `scan`, a query looks into the nearest cell, into the next ones until it has k ids, and at last wherever something
may be as near. Codes are bounded from below 64 at a time (see `soft_coarse`), and those that may matter are weighed.
A code has one row of levels or several; the distance to the code alone bounds those of its rows from below.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, lowest_one, popcount
from dmuh.index.keeping import BLOCK, CHUNK, first_turned, forget, n_ids, order, sort
from dmuh.index.scan import ONE, RUN, VISITED, radii, want
from dmuh.index.soft_coarse import choose_masks, next_light
from dmuh.index.soft_scan import weigh_codes, weigh_levels, weigh_one

_FIRST = 64  # how much farther than the nearest centre the next ones are; then twice as far, and so on
_SMALL = 96  # codes of a cell up to which its rings are not looked at
_PIECE = 1024  # rows that are looked at before there is room for more

Array = NDArray[Any]


@compiled()
def nearest_soft(
    words: Array, centres: Array, begins: Array, ends: Array, code_alive: Array, n_shared: int, rows: Array,
    levels: Array, starts: Array, ids: Array, alive: Array, living: Array, queries: Array, masks: Array,
    weights: Array, turns: Array, asked: Array, first: int, last: int, most: int, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries asked[first…last] by weighted distance, equal ones by turned id.

    words       (w, c) codes in cells: centres (w, m), begins and ends int64 (m, n_bits + 1)
    code_alive  int64 (c,) how many ids of a code may be found, or empty: all
    n_shared    codes from this one on have one row each
    rows        int64 (c + 1,) where the rows of each code begin, or empty: one each
    levels      (r, rows), starts int64 (rows + 1,) or empty, ids int64 (n,), alive int64 (rows,) or empty, and living
                bool (n,) or empty: the level rows, and their ids as those of codes in `scan.nearest`; r may be 0
    queries     (q, w + r), masks (q, w + r, DIGITS), weights uint8 (q, groups, n_bits): see `SoftQueries`
    most        the largest distance that there is
    The others are those of `scan.nearest`.
    """
    k, m, n_words, n_bits = found.shape[1], centres.shape[1], words.shape[0], begins.shape[1] - 1
    n_runs = -(-m // RUN)
    entries = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int64)  # rows that are kept
    away = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int32)
    n_near = np.zeros(BLOCK, np.int64)
    counts = np.zeros((BLOCK, most + 2), np.int64)
    limit = np.zeros(BLOCK, np.int64)
    nearer = np.zeros(BLOCK, np.int64)
    far = np.full((BLOCK, n_runs * RUN), VISITED)
    least = np.full((BLOCK, n_runs * RUN), VISITED)  # what a code of each cell is away at least
    shortest, longest = radii(begins, ends, n_runs * RUN)
    wanted = np.zeros((BLOCK, n_runs), np.uint64)
    coarse = np.zeros((BLOCK, queries.shape[1], 2), words.dtype)
    worth = np.zeros((BLOCK, queries.shape[1], 2), words.dtype)
    light = np.zeros((BLOCK, n_bits), np.int64)  # bits by their weight, the lightest first
    sums = np.zeros(RUN, words.dtype)
    for block in range(first, last, BLOCK):
        size = min(BLOCK, last - block)
        n_near[:], limit[:], nearer[:], counts[:] = 0, most, 0, 0
        for b in range(size):
            i = asked[block + b]
            choose_masks(weights, i, n_words, coarse, worth, b)
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
                words, centres, begins, ends, code_alive, n_shared, rows, levels, starts, ids, alive, living, queries,
                masks, weights, turns, asked, block, size, k, entries, away, n_near, counts, limit, nearer, far, wanted,
                coarse, worth, light, sums,
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


@compiled()
def _visit(
    words: Array, centres: Array, begins: Array, ends: Array, code_alive: Array, n_shared: int, rows: Array,
    levels: Array, starts: Array, ids: Array, alive: Array, living: Array, queries: Array, masks: Array,
    weights: Array, turns: Array, asked: Array, block: int, size: int, k: int, entries: Array, away: Array,
    n_near: Array, counts: Array, limit: Array, nearer: Array, far: Array, wanted: Array, coarse: Array, worth: Array,
    light: Array, sums: Array,
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
            for chunk in range(whole, stop, CHUNK):
                for b in range(size):
                    if not wanted[b, run] >> bit & ONE:
                        continue
                    i = asked[block + b]
                    begin, end = whole, stop
                    if stop - whole > _SMALL:
                        begin, end = _matters(centres, cell, begins, ends, queries, i, weights, light, b, limit[b])
                    begin, end = max(begin, chunk), min(end, chunk + CHUNK)
                    if begin >= end:
                        continue
                    if n_near[b] + CHUNK > entries.shape[1]:
                        make_room(
                            starts, ids, living, entries[b], away[b], n_near, b, limit[b], k - nearer[b], turns[i]
                        )
                    if begin >= n_shared:
                        _scan(
                            words, levels, rows, starts, alive, begin, end, queries, masks, i, k, entries, away, b,
                            n_near, counts, limit, nearer, coarse, worth, sums,
                        )  # fmt: skip
                    else:
                        _scan_shared(
                            words, levels, rows, starts, ids, alive, living, code_alive, begin, end, queries, masks, i,
                            turns[i], k, entries, away, b, n_near, counts, limit, nearer, coarse, worth, sums,
                        )  # fmt: skip
            for b in range(size):
                if wanted[b, run] >> bit & ONE:
                    far[b, cell] = VISITED


@compiled(allocates=False)
def _matters(
    centres: Array, cell: int, begins: Array, ends: Array, queries: Array, i: int, weights: Array, light: Array, b: int,
    reach: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return where the rings of a cell begin and end that may have codes within reach.

    A code r bits from the centre, which differs from the query in D bits, is at least as far as the lightest D - r of
    these weigh, or the lightest r - D of the others.
    """
    n_bits, per_word = weights.shape[2], centres.itemsize * 8
    d: Any = 0
    for w in range(centres.shape[0]):
        d += np.int64(popcount(centres[w, cell] ^ queries[i, w]))
    low, high, undone, done = d, d, np.int64(0), np.int64(0)
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


@compiled(allocates=False)
def _scan(
    words: Array, levels: Array, rows: Array, starts: Array, alive: Array, begin: int, end: int, queries: Array,
    masks: Array, i: int, k: int, entries: Array, away: Array, b: int, n_near: Array, counts: Array, limit: Array,
    nearer: Array, coarse: Array, worth: Array, sums: Array,
) -> None:  # fmt: skip
    """Keep the codes begin…end, of one row each, that are within the limit of query i, lowering it."""
    n_words = words.shape[0]
    shift = rows[begin] - begin if len(rows) else 0
    run = begin
    while run < end:
        run, hits = next_light(words, n_words, levels, shift, run, end, queries, i, coarse, worth, b, limit[b], sums)
        while hits:
            j = run + np.int64(lowest_one(hits))
            hits &= hits - ONE
            d = _weighed(words, j, queries, masks, i)
            if levels.shape[0] and d <= limit[b]:
                d += np.int64(weigh_one(levels, j + shift, queries[i], masks[i]))
            if d <= limit[b]:
                _keep(j + shift, d, starts, alive, k, entries, away, b, n_near, counts, limit, nearer)
        run += RUN


@compiled()
def _scan_shared(
    words: Array, levels: Array, rows: Array, starts: Array, ids: Array, alive: Array, living: Array, code_alive: Array,
    begin: int, end: int, queries: Array, masks: Array, i: int, turn: Any, k: int, entries: Array, away: Array, b: int,
    n_near: Array, counts: Array, limit: Array, nearer: Array, coarse: Array, worth: Array, sums: Array,
) -> None:  # fmt: skip
    """Keep the rows of the codes begin…end that are within the limit of query i, lowering it."""
    n_words, none, weighed = words.shape[0], levels[:0], np.empty(RUN, np.int32)
    above, upto = np.int64(-1), np.int64(_FIRST)
    while above < limit[b]:  # near codes first, whose rows set a limit for those of the others
        run = begin
        while run < end:
            reach = min(upto, limit[b])
            run, hits = next_light(words, n_words, none, 0, run, end, queries, i, coarse, worth, b, reach, sums)
            while hits:
                j = run + np.int64(lowest_one(hits))
                hits &= hits - ONE
                if len(code_alive) and code_alive[j] == 0:
                    continue
                bound = _weighed(words, j, queries, masks, i)
                if bound <= above or bound > upto:
                    continue
                row, stop = rows[j], rows[j + 1]
                while row < stop and bound <= limit[b]:
                    piece = min(row + _PIECE, stop)
                    if n_near[b] + _PIECE > entries.shape[1]:
                        make_room(starts, ids, living, entries[b], away[b], n_near, b, limit[b], k - nearer[b], turn)
                    _scan_rows(
                        levels, starts, alive, row, piece, bound, queries, masks, i, k, entries, away, b, n_near,
                        counts, limit, nearer, weighed,
                    )  # fmt: skip
                    row = piece
            run += RUN
        above, upto = upto, upto + upto


@compiled(allocates=False)
def _scan_rows(
    levels: Array, starts: Array, alive: Array, row: int, stop: int, bound: Any, queries: Array, masks: Array, i: int,
    k: int, entries: Array, away: Array, b: int, n_near: Array, counts: Array, limit: Array, nearer: Array,
    weighed: Array,
) -> None:  # fmt: skip
    """Keep the rows row…stop of a code that are within the limit, where the code alone is as far as `bound`."""
    while row < stop and bound <= limit[b]:
        # weighed at once: what levels add differs less from row to row than a bound from below is short of it
        n = min(RUN, levels.shape[1] - row)  # into the next code's rows: the rest of a run would be weighed one by one
        weigh_levels(levels, row, row + n, queries[i], masks[i], False, weighed, 0)
        if bound + _least(weighed, n) <= limit[b]:
            for at in range(row, min(row + n, stop)):
                d = bound + np.int64(weighed[at - row])
                if d <= limit[b]:
                    _keep(at, d, starts, alive, k, entries, away, b, n_near, counts, limit, nearer)
        row += RUN


@compiled(inline="always")
def _least(weighed: Array, n: int) -> Any:
    """Return the least of the first n numbers."""
    least = np.int32(2**31 - 1)
    for at in range(np.uintp(n)):
        least = min(least, weighed[at])
    return np.int64(least)


@compiled(inline="always")
def _weighed(words: Array, j: int, queries: Array, masks: Array, i: int) -> Any:
    """Return the weighted distance of the words of code j."""
    total = np.int64(0)
    for w in range(words.shape[0]):
        x = words[w, j] ^ queries[i, w]
        for digit in range(masks.shape[2]):
            total += np.int64(popcount(x & masks[i, w, digit])) << digit
    return total


@compiled(inline="always")
def _keep(
    row: int, d: Any, starts: Array, alive: Array, k: int, entries: Array, away: Array, b: int, n_near: Array,
    counts: Array, limit: Array, nearer: Array,
) -> None:  # fmt: skip
    """Keep a row at a distance within the limit, and lower the limit."""
    n = n_ids(starts, alive, row)
    if n > 0:
        entries[b, n_near[b]], away[b, n_near[b]] = row, d
        n_near[b] += 1
        counts[b, d] += n
        if d < limit[b]:
            nearer[b] += n
        while nearer[b] >= k:
            limit[b] -= 1
            nearer[b] -= counts[b, limit[b]]


@compiled()
def make_room(
    starts: Array, ids: Array, living: Array, entries: Array, away: Array, n_near: Array, b: int, limit: int,
    wanted: int, turn: Any,
) -> None:  # fmt: skip
    """Drop the rows beyond the limit, and of those at it all but as many as ids are wanted, by turned ids."""
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
def _smallest(starts: Array, ids: Array, living: Array, row: int, turn: Any) -> Any:
    """Return the smallest turned id of a row that may be found; there is one."""
    if len(starts) == 0:
        return ids[row] - turn
    e = first_turned(ids, starts[row], starts[row + 1], turn)
    while len(living) and not living[e]:
        e = e + 1 if e + 1 < starts[row + 1] else starts[row]
    return ids[e] - turn
