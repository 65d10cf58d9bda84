"""Compiled passes of soft ranking over all pairs of queries and database codes.

Distances are computed by logical operations and popcounts for a block of codes at once, which the compiler turns into
vector instructions where there are any, and are counted from there. What a block of queries gives is counted together,
so that codes are read from memory once for all of them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount
from dmuh.index.planes import DIGITS
from dmuh.metrics.kernels import rank_one, share_a_label

_CHUNK = 131_072  # codes that stay in the cache while a block of queries passes over them
_BLOCK = 1024  # codes whose distances are computed at once
_CODE, _LOW, _HIGH = np.uintp(0), np.uintp(1), np.uintp(2)  # planes
_NIL, _ONE, _TWO, _THREE, _FOUR = np.uintp(0), np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)

Array = NDArray[Any]

assert DIGITS == 6, "digits are written out below, so that their masks stay in registers"


@compiled(inline="always")
def _of_plain(c: Any, m: Any) -> Any:
    """Return how many bits of codes have a digit; m are its masks, of the constant and of the code's bit."""
    return popcount(m[0] ^ (c & m[1]))


@compiled(inline="always")
def _of_one(c: Any, t: Any, m: Any) -> Any:
    """Return how many bits of codes with a plane of levels have a digit."""
    return popcount((m[0] ^ (c & m[1])) ^ (t & (m[2] ^ (c & m[3]))))


@compiled(inline="always")
def _of_two(c: Any, t: Any, u: Any, m: Any) -> Any:
    """Return how many bits of codes with two planes of levels have a digit."""
    low, high = (m[0] ^ (c & m[1])) ^ (t & (m[2] ^ (c & m[3]))), (m[4] ^ (c & m[5])) ^ (t & (m[6] ^ (c & m[7])))
    return popcount(low ^ (u & high))


@compiled(allocates=False)
def _put_plain(planes: Array, w: int, begin: int, n: int, masks: Array, i: int, out: Array) -> None:
    """Set out (n,) to what the first word of plain codes begin…begin + n costs, or add another word's.

    masks[i, w] (DIGITS, 2) are those of the word, the first digit empty. Places are unsigned, here and below, as in
    `soft_scan`, and arrays are not cut.
    """
    masks = masks[i, w]
    m1, m2 = (masks[1, 0], masks[1, 1]), (masks[2, 0], masks[2, 1])
    m3, m4 = (masks[3, 0], masks[3, 1]), (masks[4, 0], masks[4, 1])
    m5 = masks[5, 0], masks[5, 1]
    word, at, more = np.uintp(w), np.uintp(begin), w > 0
    for j in range(np.uintp(n)):
        c = planes[_CODE, word, at + j]
        cost = (_of_plain(c, m5) << 4) + (_of_plain(c, m4) << 3) + (_of_plain(c, m3) << 2)
        cost += (_of_plain(c, m2) << 1) + _of_plain(c, m1)
        out[j] = (cost << 1) + (out[j] if more else 0)


@compiled(allocates=False)
def _put_one(planes: Array, w: int, begin: int, n: int, masks: Array, i: int, out: Array) -> None:
    """Set out to what one word of codes with a plane of levels costs, or add it; masks[i, w] (DIGITS, 4)."""
    masks = masks[i, w]
    odd, odd_t = masks[0, 0], masks[0, 2]
    m1 = masks[1, 0], masks[1, 1], masks[1, 2], masks[1, 3]
    m2 = masks[2, 0], masks[2, 1], masks[2, 2], masks[2, 3]
    m3 = masks[3, 0], masks[3, 1], masks[3, 2], masks[3, 3]
    m4 = masks[4, 0], masks[4, 1], masks[4, 2], masks[4, 3]
    m5 = masks[5, 0], masks[5, 1], masks[5, 2], masks[5, 3]
    word, at, more = np.uintp(w), np.uintp(begin), w > 0
    for j in range(np.uintp(n)):
        c, t = planes[_CODE, word, at + j], planes[_LOW, word, at + j]
        cost = (_of_one(c, t, m5) << 4) + (_of_one(c, t, m4) << 3) + (_of_one(c, t, m3) << 2)
        cost += (_of_one(c, t, m2) << 1) + _of_one(c, t, m1)
        out[j] = (cost << 1) + popcount(odd ^ (t & odd_t)) + (out[j] if more else 0)


@compiled(allocates=False)
def _put_two(planes: Array, w: int, begin: int, n: int, masks: Array, i: int, out: Array) -> None:
    """Set out to what one word of codes with two planes of levels costs, or add it; masks[i, w] (DIGITS, 8)."""
    masks = masks[i, w]
    odd = masks[0, 0], masks[0, 2], masks[0, 4], masks[0, 6]
    m1 = (masks[1, 0], masks[1, 1], masks[1, 2], masks[1, 3], masks[1, 4], masks[1, 5], masks[1, 6], masks[1, 7])
    m2 = (masks[2, 0], masks[2, 1], masks[2, 2], masks[2, 3], masks[2, 4], masks[2, 5], masks[2, 6], masks[2, 7])
    m3 = (masks[3, 0], masks[3, 1], masks[3, 2], masks[3, 3], masks[3, 4], masks[3, 5], masks[3, 6], masks[3, 7])
    m4 = (masks[4, 0], masks[4, 1], masks[4, 2], masks[4, 3], masks[4, 4], masks[4, 5], masks[4, 6], masks[4, 7])
    m5 = (masks[5, 0], masks[5, 1], masks[5, 2], masks[5, 3], masks[5, 4], masks[5, 5], masks[5, 6], masks[5, 7])
    word, at, more = np.uintp(w), np.uintp(begin), w > 0
    for j in range(np.uintp(n)):
        c, t, u = planes[_CODE, word, at + j], planes[_LOW, word, at + j], planes[_HIGH, word, at + j]
        cost = (_of_two(c, t, u, m5) << 2) + (_of_two(c, t, u, m4) << 1) + _of_two(c, t, u, m3)
        cost = (cost << 2) + (_of_two(c, t, u, m2) << 1) + _of_two(c, t, u, m1)
        out[j] = (cost << 1) + _of_one(t, u, odd) + (out[j] if more else 0)


@compiled(allocates=False)
def soft_distances(planes: Array, begin: int, n: int, masks: Array, i: int, out: Array) -> None:
    """Set out (n,) to what n codes of planes (1 + sure, w, …), from `begin` on, cost query i beyond its base.

    masks are those of queries (q, w, DIGITS, 2^(1 + sure)), as `plane_masks` makes them.
    """
    for w in range(planes.shape[1]):
        if planes.shape[0] == 1:
            _put_plain(planes, w, begin, n, masks, i, out)
        elif planes.shape[0] == 2:
            _put_one(planes, w, begin, n, masks, i, out)
        else:
            _put_two(planes, w, begin, n, masks, i, out)


@compiled(allocates=False)
def _count_block(distances: Array, begin: int, end: int, weights: Array, first: int, sub: Array, relevant: int) -> None:
    """Add the distances begin…end to four histograms sub[relevant] (4, bins) in turn.

    Each counts as often as its weight says, the first by weights[first]; where there are none, once. In turn, so that
    an increment does not wait for the one before it.
    """
    r, j, stop = np.uintp(relevant), np.uintp(begin), np.uintp(end)
    even = j + (stop - j) // _FOUR * _FOUR
    if len(weights):
        w = np.uintp(first)
        while j < even:
            sub[r, _NIL, distances[j]] += weights[w]
            sub[r, _ONE, distances[j + _ONE]] += weights[w + _ONE]
            sub[r, _TWO, distances[j + _TWO]] += weights[w + _TWO]
            sub[r, _THREE, distances[j + _THREE]] += weights[w + _THREE]
            j, w = j + _FOUR, w + _FOUR
        while j < stop:
            sub[r, _NIL, distances[j]] += weights[w]
            j, w = j + _ONE, w + _ONE
        return
    while j < even:
        sub[r, _NIL, distances[j]] += np.uint32(1)
        sub[r, _ONE, distances[j + _ONE]] += np.uint32(1)
        sub[r, _TWO, distances[j + _TWO]] += np.uint32(1)
        sub[r, _THREE, distances[j + _THREE]] += np.uint32(1)
        j += _FOUR
    while j < stop:
        sub[r, _NIL, distances[j]] += np.uint32(1)
        j += _ONE


@compiled()
def count_soft_pairs(
    planes: Array, weights: Array, starts: Array, sets: Array, masks: Array, base: Array, wanted: Array, out: Array
) -> None:
    """Count the database by soft distance and relevance for each query: out[i, relevant, distance].

    planes   (1 + sure, w, n) codes and their levels, those of one label set side by side
    weights  uint32 (n,) how many images have the code, its levels and the label set, or empty: one each
    starts   int64 (S + 1,) where the codes of each label set begin
    sets     uint64 (S, l) the label sets as bits
    masks    (q, w, DIGITS, 2^(1 + sure)), base int64 (q,): of the queries; wanted uint64 (q, l) their label sets
    """
    n, n_queries, bins = planes.shape[2], len(masks), out.shape[2]
    relevant = np.zeros((n_queries, len(sets)), np.uint8)
    for i in range(n_queries):
        share_a_label(sets, wanted[i], relevant[i])
    distances = np.empty(_BLOCK, np.uint32)
    sub = np.zeros((2, 4, bins), np.uint32)
    segment = 0
    for begin in range(0, n, _CHUNK):
        end = min(begin + _CHUNK, n)
        while starts[segment + 1] <= begin:
            segment += 1
        for i in range(n_queries):
            s, used = segment, bins - 2 * base[i]  # bits add at most as much above UNITS as the base is below
            for block in range(begin, end, _BLOCK):
                block_end = min(block + _BLOCK, end)
                soft_distances(planes, block, block_end - block, masks, i, distances)
                at = block
                while at < block_end:
                    stop = min(starts[s + 1], block_end)
                    _count_block(distances, at - block, stop - block, weights, at, sub, relevant[i, s])
                    at = stop
                    s += starts[s + 1] == stop
            for r in range(2):
                for d in range(used):
                    out[i, r, base[i] + d] += np.int64(sub[r, 0, d]) + sub[r, 1, d] + sub[r, 2, d] + sub[r, 3, d]
            sub[:, :, :used] = 0


@compiled()
def _join_labels(labels: Array, begin: int, wanted: Array, distances: Array, shared: Array) -> None:
    """Make distances (n,) of the codes from `begin` on twice as large, plus one where a wanted label is shared."""
    n = len(distances)
    shared[:] = 0
    for w in range(len(wanted)):
        if wanted[w]:  # most queries have labels in one word alone
            row, word = labels[w, begin : begin + n], wanted[w]
            for j in range(n):
                shared[j] |= row[j] & word
    for j in range(n):
        distances[j] = distances[j] << np.uint32(1) | np.uint32(shared[j] != 0)


@compiled()
def count_soft_labelled_pairs(
    planes: Array, labels: Array, masks: Array, base: Array, wanted: Array, out: Array
) -> None:
    """Count as `count_soft_pairs` does, where nearly every image has a label set of its own: labels uint64 (l, n)."""
    n, bins = planes.shape[2], out.shape[2]
    distances, shared = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint64)
    sub, once = np.zeros((1, 4, 2 * bins), np.uint32), np.empty(0, np.uint32)
    for begin in range(0, n, _CHUNK):
        end = min(begin + _CHUNK, n)
        for i in range(len(masks)):
            used = bins - 2 * base[i]
            for block in range(begin, end, _BLOCK):
                size = min(block + _BLOCK, end) - block
                soft_distances(planes, block, size, masks, i, distances)
                _join_labels(labels, block, wanted[i], distances[:size], shared[:size])
                _count_block(distances, 0, size, once, 0, sub, 0)
            for d in range(used):
                for r in range(2):
                    at = 2 * d + r
                    out[i, r, base[i] + d] += np.int64(sub[0, 0, at]) + sub[0, 1, at] + sub[0, 2, at] + sub[0, 3, at]
            sub[:, :, : 2 * used] = 0


@compiled()
def rank_softly_in_order(
    planes: Array, set_of: Array, sets: Array, masks: Array, base: Array, wanted: Array, begins: Array, cut: int,
    most: int, ranks: Array, average: Array, hits: Array, out: Array,
) -> None:  # fmt: skip
    """Rank the database by (soft distance, position) for each query: as `rank_in_order` does, with the masks above."""
    n, bins = planes.shape[2], out.shape[2]
    relevant = np.zeros(len(sets), np.uint8)
    distances, ranked, place = np.empty(n, np.uint32), np.empty(n, np.uint8), np.empty(bins, np.int64)
    for i in range(len(masks)):
        share_a_label(sets, wanted[i], relevant)
        for block in range(0, n, _BLOCK):
            end = min(block + _BLOCK, n)
            soft_distances(planes, block, end - block, masks, i, distances[block:end])
        for j in range(n):
            distances[j] += np.uint32(base[i])
            out[i, relevant[set_of[j]], distances[j]] += 1
        average[i] = rank_one(distances, set_of, relevant, begins[i], cut, most, ranks, ranked, place, hits[i], out[i])
