"""Compiled: weighted distances from below, by three masks per row of words, many codes at a time.

A weight is at least as many times a unit as it holds whole ones, 7 at the most. That number has three binary digits;
with a mask of each, three popcounts per word are a bound that is not far below the weighted distance (see `weighing`),
and what is beyond a limit by the bound need not be weighed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled
from dmuh.index.scan import ONE
from dmuh.index.soft_scan import three

_MOST = 7  # units
_UNITS = 9  # the largest unit that is tried; no weight is more than 7 times it
_ALL, _TWO = np.uint64(2**64 - 1), np.uint64(2)

Array = NDArray[Any]


@compiled()
def choose_masks(weights: Array, i: int, masks: Array, b: int) -> Any:
    """Set masks[b] (w, 3) for the weights[i, 0] uint8 (n_bits,); return the unit, that by which most is counted."""
    n_bits, per_word = weights.shape[2], masks.itemsize * 8
    at_least = np.zeros(_MOST * _UNITS + 1, np.int64)
    for bit in range(n_bits):
        at_least[weights[i, 0, bit]] += 1
    for weight in range(len(at_least) - 2, -1, -1):
        at_least[weight] += at_least[weight + 1]
    best, unit = np.int64(0), np.int64(1)
    for tried in range(1, _UNITS + 1):
        counted = np.int64(0)
        for times in range(1, _MOST + 1):
            counted += tried * at_least[tried * times]
        if counted > best:
            best, unit = counted, np.int64(tried)
    whole = np.empty(len(at_least), np.uint64)  # units of each weight
    for weight in range(len(at_least)):
        whole[weight] = np.uint64(min(weight // unit, np.int64(_MOST)))
    for word in range(masks.shape[1]):
        low, middle, high = np.uint64(0), np.uint64(0), np.uint64(0)
        for bit in range(min(per_word, n_bits - word * per_word)):
            times, place = whole[weights[i, 0, word * per_word + bit]], np.uint64(bit)
            low |= (times & ONE) << place
            middle |= (times >> ONE & ONE) << place
            high |= (times >> _TWO) << place
        masks[b, word, 0], masks[b, word, 1], masks[b, word, 2] = low, middle, high
    return unit


@compiled(inline="always")
def weigh_coarsely(words: Array, begin: Any, n: Any, queries: Array, i: int, masks: Array, b: int, sums: Array) -> None:
    """Set sums (≥ n,) to bounds of what n codes of words (w, c) weigh, from `begin` on, in units of masks[b] (w, 3).

    Places are unsigned: numba would look for negative ones, and take the words one by one.
    """
    at, last = np.uintp(begin), np.uintp(n)
    for row in range(words.shape[0]):
        r, word, low, middle, high = (
            np.uintp(row),
            queries[i, row],
            masks[b, row, 0],
            masks[b, row, 1],
            masks[b, row, 2],
        )
        if row == 0:
            for j in range(last):
                sums[j] = three(words[r, at + j] ^ word, low, middle, high)
        else:
            for j in range(last):
                sums[j] += three(words[r, at + j] ^ word, low, middle, high)


@compiled(inline="always")
def next_light(
    words: Array, begin: int, end: int, queries: Array, i: int, masks: Array, b: int, reach: Any, sums: Array
) -> tuple[Any, Any]:
    """Return where the next 64 codes begin of which some may be within reach of query i, and which, as bits.

    The reach is in units of masks[b]. From the end on there are none. sums (64,) is overwritten.
    """
    at, whole = np.uintp(begin), np.uintp(min(end, max(words.shape[1] - RUN + 1, 0)))
    hits = np.uint64(0)
    while at < whole and hits == 0:
        weigh_coarsely(words, at, RUN, queries, i, masks, b, sums)
        hits = within_reach(sums, reach)
        at += np.uintp(RUN)
    run: Any = np.int64(at)
    if hits:
        run -= RUN
    elif run < end:  # fewer than a run are left of all codes: each is looked at
        hits = _ALL
    if end - run < RUN:
        left: Any = max(end - run, 0)
        hits &= (ONE << np.uint64(left)) - ONE
    return run, hits


@compiled(inline="always")
def within_reach(sums: Array, reach: Any) -> Any:
    """Return which of the first 64 sums are within reach, as bits; mostly none is, which is quicker to see."""
    of_sums = sums.dtype.type  # what is as wide becomes vector instructions
    hits, most, some, one, none = np.uint64(0), of_sums(reach), of_sums(0), of_sums(1), of_sums(0)
    for j in range(np.uintp(RUN)):
        some |= one if sums[j] <= most else none
    if some:
        for j in range(np.uintp(RUN)):
            hits |= np.uint64(sums[j] <= most) << np.uint64(j)
    return hits
