"""Compiled search by weighted distances where many ids share a code, with different levels.

Each code has one or more rows of levels. The distance to the code alone bounds the distances of its rows from below,
and what a run of codes has in common bounds those of the run. Chunk by chunk, codes are visited from small bounds to
large ones, and their rows are weighed while the bound is within the limit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled
from dmuh.index.graded import RUN
from dmuh.index.keeping import BLOCK, CHUNK, lowered, make_room, n_ids, order
from dmuh.index.soft_scan import six, weigh_codes, weigh_levels, weigh_one
from dmuh.index.soft_whole import PART, keep, next_part

_PIECE = 1024  # rows that are weighed together
_FEW = 6  # rows that are weighed one by one
_FIRST = 8  # how far above the smallest bound of a chunk the first visits go; the next go twice as far, and so on
_FAR = np.int32(2**31 - 1)

Array = NDArray[Any]


@compiled()
def nearest_in_rows(
    words: Array, common: Array, fixed: Array, code_alive: Array, n_shared: int, rows: Array, levels: Array,
    starts: Array, ids: Array, alive: Array, living: Array, queries: Array, masks: Array, turns: Array, first: int,
    last: int, most: int, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries first…last by weighted distance, in the order of (distance, turned id).

    words       (w, c) codes; common and fixed (w, runs) what runs of them share
    code_alive  int64 (c,) how many ids of a code may be found, or empty: all
    n_shared    codes from this one on, a multiple of a run, have one row each
    rows        int64 (c + 1,) where the rows of each code begin
    levels      (r, m), starts int64 (m + 1,) or empty, ids int64 (n,), alive int64 (m,) or empty: the rows, and their
                ids as those of codes in `nearest_scanned`
    The others are those of `nearest_scanned`.
    """
    n_codes, k = words.shape[1], found.shape[1]
    entries = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int64)
    away = np.empty((BLOCK, 2 * k + 2 * CHUNK), np.int32)
    n_near = np.zeros(BLOCK, np.int64)
    counts = np.zeros((BLOCK, most + 2), np.int64)
    limit = np.zeros(BLOCK, np.int64)
    nearer = np.zeros(BLOCK, np.int64)
    bounds = np.empty(CHUNK, np.int32)
    weighed = np.empty(CHUNK, np.int32)
    near = np.empty(CHUNK // RUN, np.int64)
    none = levels[:0]
    for block in range(first, last, BLOCK):
        n_near[:], limit[:], nearer[:], counts[:] = 0, most, 0, 0
        begin = 0
        while begin < n_codes:
            shared = begin < n_shared
            end = min(begin + CHUNK, n_shared if shared else n_codes)
            for b in range(min(BLOCK, last - block)):
                query, digits, turn = queries[block + b], masks[block + b], turns[block + b]
                settled = nearer[b] + counts[b, limit[b]] >= k
                _weigh_near(
                    words, common, fixed, none if shared else levels, rows, begin, end, query, digits,
                    limit[b] if settled else np.int64(_FAR), near, bounds,
                )  # fmt: skip
                if n_near[b] + CHUNK > entries.shape[1]:
                    make_room(starts, ids, living, entries[b], away[b], n_near, b, limit[b], k - nearer[b], turn)
                if not shared:
                    n_near[b], limit[b], nearer[b] = keep(
                        bounds, rows[begin], rows[begin] + end - begin, starts, alive, k, entries[b], away[b],
                        n_near[b], counts[b], limit[b], nearer[b],
                    )  # fmt: skip
                    continue
                above, upto = -1, limit[b]
                if not settled:  # the best codes shall set a limit for the others
                    upto = min(upto, np.int64(bounds[: end - begin].min()) + _FIRST)
                while above < limit[b]:
                    limit[b], nearer[b] = _visit(
                        bounds, above, upto, begin, end, code_alive, rows, weighed, levels, starts, ids, alive, living,
                        query, digits, turn, k, entries[b], away[b], n_near, b, counts[b], limit[b], nearer[b],
                    )  # fmt: skip
                    above, upto = upto, min(upto + upto, limit[b])
            begin = end
        for b in range(min(BLOCK, last - block)):
            i = block + b
            order(
                starts, ids, living, entries[b], away[b], n_near[b], counts[b], limit[b], k, turns[i], distances[i],
                found[i],
            )  # fmt: skip


@compiled(allocates=False)
def _weigh_near(
    words: Array, common: Array, fixed: Array, levels: Array, rows: Array, begin: int, end: int, query: Array,
    masks: Array, reach: Any, near: Array, out: Array,
) -> None:  # fmt: skip
    """Weigh the codes begin…end and the levels, one row each, but for runs that are beyond reach as a whole."""
    n_runs = -(-(end - begin) // RUN)
    n_near = 0
    for run in range(n_runs):
        least: Any = 0
        for r in range(words.shape[0]):
            x = (common[r, begin // RUN + run] ^ query[r]) & fixed[r, begin // RUN + run]
            least += np.int64(six(x, masks[r, 0], masks[r, 1], masks[r, 2], masks[r, 3], masks[r, 4], masks[r, 5]))
        if least <= reach:
            near[n_near] = run
            n_near += 1
    if 4 * n_near > n_runs:
        _weigh_run(words, levels, rows, begin, end, query, masks, out, 0)
        return
    for at in range(n_runs * RUN):
        out[at] = _FAR
    for at in range(n_near):
        low = begin + near[at] * RUN
        high = min(low + RUN, end)
        _weigh_run(words, levels, rows, low, high, query, masks, out, low - begin)


@compiled(inline="always")
def _weigh_run(
    words: Array, levels: Array, rows: Array, begin: int, end: int, query: Array, masks: Array, out: Array, to: int
) -> None:
    weigh_codes(words, begin, end, query, masks, out, to)
    if levels.shape[0]:
        weigh_levels(levels, rows[begin], rows[begin] + end - begin, query, masks, True, out, to)


@compiled(allocates=False)
def _visit(
    bounds: Array, above: int, upto: int, begin: int, end: int, code_alive: Array, rows: Array, weighed: Array,
    levels: Array, starts: Array, ids: Array, alive: Array, living: Array, query: Array, masks: Array, turn: Any,
    k: int, entries: Array, away: Array, n_near: Array, b: int, counts: Array, limit: int, nearer: int,
) -> tuple[int, int]:  # fmt: skip
    """Weigh the rows of the codes begin…end whose bounds are above one number, up to another and within the limit."""
    n = end - begin
    upto = min(upto, limit)
    part = next_part(bounds, 0, n, upto)
    while part < n:
        for j in range(part, min(part + PART, n)):
            bound: Any = np.int64(bounds[j])
            if bound > upto or bound <= above or (len(code_alive) and code_alive[begin + j] == 0):
                continue
            row, stop = rows[begin + j], rows[begin + j + 1]
            while row < stop:
                piece = min(row + _PIECE, stop)
                if n_near[b] + _PIECE > len(entries):
                    make_room(starts, ids, living, entries, away, n_near, b, limit, k - nearer, turn)
                if piece - row <= _FEW:
                    for at in range(row, piece):
                        weighed[at - row] = weigh_one(levels, at, query, masks)
                else:  # whole runs, into the next code's rows: the rest of a run would be weighed one by one
                    whole = min(row + -(-(piece - row) // RUN) * RUN, levels.shape[1])
                    weigh_levels(levels, row, whole, query, masks, False, weighed, 0)
                n_near[b], limit, nearer = _take(
                    weighed, row, piece, bound, starts, alive, k, entries, away, n_near[b], counts, limit, nearer
                )
                row = piece
            upto = min(upto, limit)
        part = next_part(bounds, part + PART, n, upto)
    return limit, nearer


@compiled(inline="always")
def _take(
    weighed: Array, begin: int, end: int, bound: int, starts: Array, alive: Array, k: int, entries: Array, away: Array,
    n_near: int, counts: Array, limit: int, nearer: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Keep the rows begin…end that are within the limit: `weighed` is what their levels add to their code's bound."""
    n = end - begin
    part = 0 if n <= _FEW else next_part(weighed, 0, n, limit - bound)
    while part < n:
        for at in range(part, min(part + PART, n)):
            d = bound + np.int64(weighed[at])
            if d <= limit:
                m = n_ids(starts, alive, begin + at)
                if m > 0:
                    entries[n_near], away[n_near] = begin + at, d
                    n_near += 1
                    limit, nearer = lowered(limit, nearer, counts, d, m, k)
        part = next_part(weighed, part + PART, n, limit - bound)
    return n_near, limit, nearer
