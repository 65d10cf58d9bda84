"""Compiled passes over pairs of images; `plain.py` has each of them in numpy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount

_CHUNK = 2048  # codes that stay in the cache while a block of rows passes over them

Array = NDArray[Any]


@compiled(fastmath=True)
def near_codes(variants: Array, words: Array, radius: int, offset: int, first: int, last: int) -> Any:
    """Return the pairs int64 (m, 2) of rows first…last and codes whose distance is at most `radius`.

    variants  uint64 (v, w, rows): the distance of a row is that of its nearest variant
    words     uint64 (w, n) the codes
    offset    row i is compared with the codes from i + offset on; below 0 it is compared with all
    """
    n_variants, n_words, _ = variants.shape
    n = words.shape[1]
    found = np.empty((1024, 2), np.int64)
    n_found = 0
    nearest, away = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    limit = np.uint64(radius)
    begin = 0 if offset < 0 else min(first + offset, n)
    while begin < n:
        end = min(begin + _CHUNK, n)
        for i in range(first, last):
            start = begin if offset < 0 else max(begin, i + offset)
            if start >= end:
                continue
            size = end - start
            nearest[:size] = np.uint64(1 << 30)
            for v in range(n_variants):
                for w in range(n_words):
                    _add_distances(words[w, start:end], variants[v, w, i], away[:size], w == 0)
                _keep_smaller(away[:size], nearest[:size])
            near = _count_within(nearest[:size], limit)
            if near == 0:
                continue
            if n_found + near > len(found):
                larger = np.empty((2 * len(found) + near, 2), np.int64)
                larger[:n_found] = found[:n_found]
                found = larger
            for k in range(size):
                if nearest[k] <= limit:
                    found[n_found, 0], found[n_found, 1] = i, start + k
                    n_found += 1
        begin = end
    return found[:n_found].copy()


# Loops over one contiguous array each, so that the compiler takes many codes at a time.


@compiled(allocates=False)
def _add_distances(words: Array, word: Any, away: Array, anew: bool) -> None:
    if anew:
        for k in range(len(words)):
            away[k] = popcount(words[k] ^ word)
    else:
        for k in range(len(words)):
            away[k] += popcount(words[k] ^ word)


@compiled(allocates=False)
def _keep_smaller(away: Array, nearest: Array) -> None:
    for k in range(len(away)):
        nearest[k] = min(nearest[k], away[k])


@compiled(allocates=False)
def _count_within(nearest: Array, limit: Any) -> int:
    near = 0
    for k in range(len(nearest)):
        near += nearest[k] <= limit
    return near


@compiled(fastmath=True)
def cosines(left: Array, right: Array, pairs: Array, result: Array) -> None:
    """Fill result float32 (m,) with the products of rows of left (a, d) and right (b, d) at pairs (m, 2)."""
    for n in range(len(pairs)):
        result[n] = _product(left[pairs[n, 0]], right[pairs[n, 1]])


@compiled(fastmath=True, allocates=False)
def _product(one: Array, other: Array) -> Any:
    total = np.float32(0)
    for k in range(len(one)):
        total += one[k] * other[k]
    return total


@compiled(fastmath=True)
def alignments(
    left: Array, right: Array, pairs: Array, symmetric: Array, taps: Array, weights: Array, windows: Array,
    tilted: Array, shares: Array, floor: Any, first: int, last: int, best: Array,
) -> None:  # fmt: skip
    """Fill best float32 (m,) for the pairs first…last: the largest correlation of one picture and a part of the other.

    left, right  float32 (a, p, p), (b, p, p): pictures
    pairs        int64 (m, 2): rows of left and right
    symmetric    int64 (8, d²): where each cell of a turned or mirrored picture of d × d cells comes from
    taps         int64 (o, d): the first pixel that each cell of a one-dimensional window takes in
    weights      float32 (o, d, t): with which weights it takes in that and the next ones
    windows      int64 (k, 2): the one-dimensional windows of each window, down and across; the first is the whole
    tilted       int64 (r, d², 4): cells of which those of a tilted picture are made, and their shares float32
    floor        length that a flat picture is given at least
    """
    d = weights.shape[1]
    turned = np.empty((8, d * d), np.float32)
    rows = np.empty((len(weights), left.shape[1], d), np.float32)
    square, whole = np.empty((d, d), np.float32), np.empty((d, d), np.float32)
    cells = square.reshape(-1)
    for n in range(first, last):
        best[n] = -1
        for side in range(2):
            if side == 0:
                one, other = left[pairs[n, 0]], right[pairs[n, 1]]
            else:
                one, other = right[pairs[n, 1]], left[pairs[n, 0]]
            _fill_rows(other, taps, weights, windows[0, 0], windows[0, 0] + 1, rows)
            _fill_cells(rows[windows[0, 0]], taps[windows[0, 1]], weights[windows[0, 1]], square)
            _normalise(square, floor)
            for g in range(8):
                for c in range(d * d):
                    turned[g, c] = cells[symmetric[g, c]]
            _fill_rows(one, taps, weights, 0, len(weights), rows)
            _fill_cells(rows[windows[0, 0]], taps[windows[0, 1]], weights[windows[0, 1]], whole)
            for k in range(len(windows) + len(tilted)):
                if k < len(windows):
                    _fill_cells(rows[windows[k, 0]], taps[windows[k, 1]], weights[windows[k, 1]], square)
                else:
                    _tilt(whole.reshape(-1), tilted[k - len(windows)], shares[k - len(windows)], cells)
                _normalise(square, floor)
                for g in range(8):
                    best[n] = max(best[n], _product(cells, turned[g]))


@compiled(fastmath=True)
def _fill_rows(picture: Array, taps: Array, weights: Array, begin: int, end: int, rows: Array) -> None:
    """Fill rows (o, p, d) with what the one-dimensional windows begin…end make of the columns of a picture (p, p)."""
    column = np.empty(picture.shape[0], np.float32)
    for o in range(begin, end):
        for c in range(weights.shape[1]):
            column[:] = 0
            for t in range(weights.shape[2]):
                source, weight = picture[taps[o, c] + t], weights[o, c, t]
                for x in range(len(column)):
                    column[x] += weight * source[x]
            for x in range(len(column)):
                rows[o, x, c] = column[x]


@compiled(fastmath=True, allocates=False)
def _fill_cells(rows: Array, taps: Array, weights: Array, cells: Array) -> None:
    """Fill cells (d, d) with a window of a picture, column by column: that is quicker, and turned in any case."""
    for x in range(cells.shape[0]):
        for y in range(cells.shape[1]):
            cells[x, y] = 0
        for t in range(weights.shape[1]):
            place, weight = taps[x] + t, weights[x, t]
            for y in range(cells.shape[1]):
                cells[x, y] += weight * rows[place, y]


@compiled(fastmath=True, allocates=False)
def _tilt(whole: Array, tilted: Array, shares: Array, cells: Array) -> None:
    """Fill cells (d²,) with a picture (d²,) tilted a little."""
    for c in range(len(cells)):
        total = np.float32(0)
        for t in range(4):
            total += shares[c, t] * whole[tilted[c, t]]
        cells[c] = total


@compiled(fastmath=True)
def _normalise(cells: Array, floor: Any) -> None:
    """Take the means of rows and columns from cells (d, d), and give them the length 1, or less where they are flat."""
    d = len(cells)
    means = np.zeros(d, np.float32)
    for y in range(d):
        mean = np.float32(0)
        for x in range(d):
            mean += cells[y, x]
        mean /= d
        for x in range(d):
            cells[y, x] -= mean
            means[x] += cells[y, x] / d
    square = np.float32(0)
    for y in range(d):
        for x in range(d):
            cells[y, x] -= means[x]
            square += cells[y, x] * cells[y, x]
    scale = np.float32(1 / max(np.sqrt(square), floor))
    for y in range(d):
        for x in range(d):
            cells[y, x] *= scale
