"""Compiled passes over all pairs of queries and database codes.

Relevance is decided once for each query and each distinct set of labels, of which there are few, and not for each pair.
The passes release the interpreter's lock and take a range of queries, so that threads can share the work.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount

_CHUNK = 8192  # codes that stay in the cache while a block of queries passes over them
_BLOCK = 32  # queries in such a block

Array = NDArray[Any]


@compiled(inline="always")
def distance(words: Array, j: int, queries: Array, i: int) -> Any:
    """Return the Hamming distance of code j of words (w, c) and query i of (w, q)."""
    total = popcount(words[0, j] ^ queries[0, i])
    for w in range(1, words.shape[0]):
        total += popcount(words[w, j] ^ queries[w, i])
    return total


@compiled()
def share_a_label(sets: Array, wanted: Array, relevant: Array) -> None:
    """Mark which label sets (S, l words) share a label with a query (l words)."""
    for s in range(sets.shape[0]):
        common = np.uint64(0)
        for w in range(sets.shape[1]):
            common |= sets[s, w] & wanted[w]
        relevant[s] = common != 0


@compiled()
def _count_run(words: Array, weights: Array, begin: int, end: int, queries: Array, i: int, sub: Array) -> None:
    """Add the codes begin…end to the histogram of their distances to query i.

    Neighbouring codes go to different sub-histograms, so that an increment does not wait for the one before it. Indices
    are unsigned: signed ones are checked for counting from the end.
    """
    even = begin
    if words.shape[0] == 1:
        even = begin + (end - begin) // 4 * 4
        row, q = words[0], queries[0, i]
        j, one, two, three = np.uintp(begin), np.uintp(1), np.uintp(2), np.uintp(3)
        if len(weights):
            while j < np.uintp(even):
                sub[0, popcount(row[j] ^ q)] += weights[j]
                sub[1, popcount(row[j + one] ^ q)] += weights[j + one]
                sub[2, popcount(row[j + two] ^ q)] += weights[j + two]
                sub[3, popcount(row[j + three] ^ q)] += weights[j + three]
                j += np.uintp(4)
        else:
            while j < np.uintp(even):
                sub[0, popcount(row[j] ^ q)] += np.uint32(1)
                sub[1, popcount(row[j + one] ^ q)] += np.uint32(1)
                sub[2, popcount(row[j + two] ^ q)] += np.uint32(1)
                sub[3, popcount(row[j + three] ^ q)] += np.uint32(1)
                j += np.uintp(4)
    for k in range(even, end):
        sub[k & 3, distance(words, k, queries, i)] += weights[k] if len(weights) else np.uint32(1)


@compiled()
def count_pairs(
    words: Array, weights: Array, starts: Array, sets: Array, queries: Array, wanted: Array, first: int, last: int,
    out: Array,
) -> None:  # fmt: skip
    """Count the database by distance and relevance for the queries first…last: out[i, relevant, distance].

    words    (w, n) codes, those of one label set side by side
    weights  uint32 (n,) how many images have the code and the label set, or empty: one each
    starts   int64 (S + 1,) where the codes of each label set begin
    sets     uint64 (S, l) the label sets as bits
    queries  (w, q), wanted uint64 (q, l): the queries' codes and label sets
    """
    n, n_sets, bins = words.shape[1], len(sets), out.shape[2]
    relevant = np.zeros((_BLOCK, n_sets), np.uint8)
    sub = np.zeros((2, 4, bins), np.uint32)
    for block in range(first, last, _BLOCK):
        block_end = min(block + _BLOCK, last)
        for i in range(block, block_end):
            share_a_label(sets, wanted[i], relevant[i - block])
        segment = 0
        for begin in range(0, n, _CHUNK):
            end = min(begin + _CHUNK, n)
            while starts[segment + 1] <= begin:
                segment += 1
            for i in range(block, block_end):
                sub[:] = 0
                s, at = segment, begin
                while at < end:
                    stop = min(starts[s + 1], end)
                    _count_run(words, weights, at, stop, queries, i, sub[relevant[i - block, s]])
                    at = stop
                    s += 1
                for r in range(2):
                    for d in range(bins):
                        out[i, r, d] += np.int64(sub[r, 0, d]) + sub[r, 1, d] + sub[r, 2, d] + sub[r, 3, d]


@compiled()
def _count_labelled_run(
    words: Array, labels: Array, begin: int, end: int, queries: Array, i: int, wanted: Array, sub: Array
) -> None:
    """Add the codes begin…end to the histogram of (distance, relevance) to query i; relevance pair by pair."""
    even = begin
    one, zero = np.uint32(1), np.uint64(0)
    if words.shape[0] == 1 and labels.shape[0] == 2:  # up to 64 bits and 128 labels
        even = begin + (end - begin) // 4 * 4
        row, q, low, high, a, b = words[0], queries[0, i], labels[0], labels[1], wanted[i, 0], wanted[i, 1]
        j = np.uintp(begin)
        while b == zero and j < np.uintp(even):  # most queries have none of the labels beyond 64
            j1, j2, j3 = j + np.uintp(1), j + np.uintp(2), j + np.uintp(3)
            sub[0, _bin(popcount(row[j] ^ q), low[j] & a)] += one
            sub[1, _bin(popcount(row[j1] ^ q), low[j1] & a)] += one
            sub[2, _bin(popcount(row[j2] ^ q), low[j2] & a)] += one
            sub[3, _bin(popcount(row[j3] ^ q), low[j3] & a)] += one
            j += np.uintp(4)
        while j < np.uintp(even):
            j1, j2, j3 = j + np.uintp(1), j + np.uintp(2), j + np.uintp(3)
            sub[0, _bin(popcount(row[j] ^ q), (low[j] & a) | (high[j] & b))] += one
            sub[1, _bin(popcount(row[j1] ^ q), (low[j1] & a) | (high[j1] & b))] += one
            sub[2, _bin(popcount(row[j2] ^ q), (low[j2] & a) | (high[j2] & b))] += one
            sub[3, _bin(popcount(row[j3] ^ q), (low[j3] & a) | (high[j3] & b))] += one
            j += np.uintp(4)
    for k in range(even, end):
        shared = zero
        for w in range(labels.shape[0]):
            shared |= labels[w, k] & wanted[i, w]
        sub[k & 3, _bin(distance(words, k, queries, i), shared)] += one


@compiled(inline="always")
def _bin(away: Any, shared: Any) -> Any:
    """Return where a pair is counted: distance, then relevance."""
    return (np.uintp(away) << np.uintp(1)) | np.uintp(shared != np.uint64(0))


@compiled()
def count_labelled_pairs(
    words: Array, labels: Array, queries: Array, wanted: Array, first: int, last: int, out: Array
) -> None:
    """Count as `count_pairs` does, where nearly every image has a label set of its own: labels uint64 (l, n)."""
    n, bins = words.shape[1], out.shape[2]
    sub = np.zeros((4, 2 * bins), np.uint32)
    for block in range(first, last, _BLOCK):
        for begin in range(0, n, _CHUNK):
            end = min(begin + _CHUNK, n)
            for i in range(block, min(block + _BLOCK, last)):
                sub[:] = 0
                _count_labelled_run(words, labels, begin, end, queries, i, wanted, sub)
                for d in range(bins):
                    for r in range(2):
                        at = 2 * d + r
                        out[i, r, d] += np.int64(sub[0, at]) + sub[1, at] + sub[2, at] + sub[3, at]


@compiled()
def rank_one(
    distances: Array, set_of: Array, relevant: Array, begin: int, cut: int, most: int, ranks: Array, ranked: Array,
    place: Array, hits: Array, counts: Array,
) -> float:  # fmt: skip
    """Rank the database by (distance, position) for one query, and return the average precision of the first `cut`.

    Positions go round from `begin` on. The average is divided by `most` of the relevant items at most, or where that is
    0 by those among the first `cut`.

    distances (n,), set_of int32 (n,) the label set of each, relevant uint8 (S,) which of these are; counts (2, bins) of
    distances by relevance. hits (ranks,) gets the relevant items among the first `ranks`, which ascend; ranked (n,) and
    place (bins,) are room to work in.
    """
    at = 0
    for d in range(counts.shape[1]):
        place[d] = at
        at += counts[0, d] + counts[1, d]
    for low, high in ((begin, len(distances)), (0, begin)):
        for j in range(low, high):
            d = distances[j]
            ranked[place[d]] = relevant[set_of[j]]
            place[d] += 1
    found, total, at = 0, 0.0, 0
    retrieved = 0
    for rank in range(1, len(distances) + 1):
        if ranked[rank - 1]:
            found += 1
            if rank <= cut:
                total += found / rank
                retrieved += 1
        while at < len(ranks) and ranks[at] == rank:
            hits[at] = found
            at += 1
    among = min(found, most) if most else retrieved
    return total / max(among, 1)


@compiled()
def rank_in_order(
    words: Array, set_of: Array, sets: Array, queries: Array, wanted: Array, begins: Array, first: int, last: int,
    cut: int, most: int, ranks: Array, average: Array, hits: Array, out: Array,
) -> None:  # fmt: skip
    """Rank the database by (distance, position) for the queries first…last: what a stable sort gives, without sorting.

    words    (w, n) codes in the order of the database; set_of int32 (n,): the label set of each
    begins   int64 (q,) the position that is first among equal distances; those before it are last
    average  float64 (q,) gets the average precision of the first `cut`; hits float64 (q, ranks) the relevant among them
    out      int64 (q, 2, bins) gets the counts by relevance and distance
    """
    n, bins = words.shape[1], out.shape[2]
    relevant = np.zeros(len(sets), np.uint8)
    distances = np.empty(n, np.uint16)
    ranked = np.empty(n, np.uint8)
    place = np.empty(bins, np.int64)
    for i in range(first, last):
        share_a_label(sets, wanted[i], relevant)
        for j in range(n):
            d = distance(words, j, queries, i)
            distances[j] = d
            out[i, relevant[set_of[j]], d] += 1
        average[i] = rank_one(distances, set_of, relevant, begins[i], cut, most, ranks, ranked, place, hits[i], out[i])
