"""Compiled search for the nearest of many centres, and for better centres."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount

_SHIFT = np.uint64(16)  # a distance and the number of a centre in one word, so that the least of both is one minimum
_NUMBER = np.uint64(0xFFFF)

Array = NDArray[Any]


@compiled()
def nearest_centre(words: Array, centres: Array) -> tuple[Array, Array]:
    """Return which of the centres (w, m) is nearest to each code of words (w, c), m < 2¹⁶, and how far: int64 (c,)."""
    cell = np.empty(words.shape[1], np.int64)
    away = np.empty(words.shape[1], np.int64)
    for j in range(words.shape[1]):
        best = _nearest(words, j, centres)
        cell[j], away[j] = best & _NUMBER, best >> _SHIFT
    return cell, away


@compiled(allocates=False)
def _nearest(words: Array, j: int, centres: Array) -> Any:
    best = np.uint64(0xFFFFFFFF)
    n, zero, one = np.uintp(centres.shape[1]), np.uintp(0), np.uintp(1)
    if words.shape[0] == 1:
        word = words[0, j]
        for c in range(n):
            best = min(best, np.uint64(popcount(centres[zero, c] ^ word)) << _SHIFT | np.uint64(c))
    elif words.shape[0] == 2:
        low, high = words[0, j], words[1, j]
        for c in range(n):
            d = np.uint64(popcount(centres[zero, c] ^ low)) + np.uint64(popcount(centres[one, c] ^ high))
            best = min(best, d << _SHIFT | np.uint64(c))
    else:
        for c in range(n):
            d = np.uint64(0)
            for w in range(words.shape[0]):
                d += np.uint64(popcount(centres[w, c] ^ words[w, j]))
            best = min(best, d << _SHIFT | np.uint64(c))
    return best


@compiled()
def majority(words: Array, cell: Array, centres: Array, n_bits: int) -> Array:
    """Return centres (w, m) anew: each bit is that of most codes (w, c) of the cell, if it has any."""
    per_word = words.itemsize * 8
    m = centres.shape[1]
    n_codes = np.zeros(m, np.int64)
    ones = np.zeros((m, n_bits), np.int64)
    for j in range(words.shape[1]):
        n_codes[cell[j]] += 1
        for bit in range(n_bits):
            ones[cell[j], bit] += np.int64(words[bit // per_word, j] >> np.uint64(bit % per_word)) & 1
    found = np.zeros_like(centres)
    for c in range(m):
        if n_codes[c] == 0:
            found[:, c] = centres[:, c]
            continue
        for bit in range(n_bits):
            if 2 * ones[c, bit] > n_codes[c]:
                found[bit // per_word, c] |= np.uint64(1) << np.uint64(bit % per_word)
    return found


@compiled()
def limits(words: Array, sizes: Array, queries: Array, k: int, n_bits: int) -> Array:
    """Return the distance int64 (q,) within which each query (w, q) has k ids, or the largest that there is.

    sizes  int64 (c,) how many ids each code has, or empty: one each
    """
    found = np.empty(queries.shape[1], np.int64)
    counts = np.empty(n_bits + 1, np.int64)
    for i in range(queries.shape[1]):
        counts[:] = 0
        for j in range(words.shape[1]):
            d = np.int64(0)
            for w in range(words.shape[0]):
                d += np.int64(popcount(words[w, j] ^ queries[w, i]))
            counts[d] += sizes[j] if len(sizes) else 1
        n, reach = counts[0], 0
        while n < k and reach < n_bits:
            reach += 1
            n += counts[reach]
        found[i] = reach
    return found
