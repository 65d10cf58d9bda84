"""Compiled: weighted distances from below, by two masks per row of words, many codes at a time.

A weight is at least t₂ where it is t₂ or more, and t₁ - t₂ more where it is t₁ or more. With a mask of each, two
popcounts per word are a bound that is not far below the weighted distance (see `weighing`), and what is beyond a limit
by the bound need not be weighed.

Where codes have levels, u steps that a code lacks to the highest one cost at least what the u lightest steps weigh (see
`soft_nearest`). That sum grows ever faster with u, so that each of its tangents is a bound from below too, and one that
is a product: see `tangent`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, popcount
from dmuh.index.scan import ONE

_STEP = 5  # between the thresholds that are tried
_HEAVIEST = 63  # no weight is more
_ALL = np.uint64(2**64 - 1)

Array = NDArray[Any]


@compiled()
def choose_masks(weights: Array, i: int, n_words: int, masks: Array, worth: Array, b: int) -> None:
    """Set masks[b] (rows, 2) and what they are worth, worth[b] (rows, 2), for the weights[i] uint8 (groups, n_bits).

    The thresholds of each group are those by which most of its weight is counted.
    """
    n_groups, n_bits = weights.shape[1:]
    per_word = masks.itemsize * 8
    at_least = np.empty(_HEAVIEST + 2, np.int64)
    for group in range(n_groups):
        at_least[:] = 0
        for bit in range(n_bits):
            at_least[weights[i, group, bit]] += 1
        for weight in range(_HEAVIEST, -1, -1):
            at_least[weight] += at_least[weight + 1]
        best, light, heavy = -1, 0, 0
        for low in range(0, _HEAVIEST + 1, _STEP):
            for high in range(low, _HEAVIEST + 1, _STEP):
                counted = low * at_least[low] + (high - low) * at_least[high]
                if counted > best:
                    best, light, heavy = counted, low, high
        for w in range(n_words):
            row = group * n_words + w
            masks[b, row, 0], masks[b, row, 1] = 0, 0
            worth[b, row, 0], worth[b, row, 1] = light, heavy - light
            for bit in range(w * per_word, min((w + 1) * per_word, n_bits)):
                one = np.uint64(1) << np.uint64(bit - w * per_word)
                if weights[i, group, bit] >= light:
                    masks[b, row, 0] |= one
                if weights[i, group, bit] >= heavy:
                    masks[b, row, 1] |= one


@compiled(allocates=False)
def tangent(steps: Array, middle: Any) -> tuple[Any, Any]:
    """Return a slope and a number: slope · u less that is at most steps[u] for each u, and equal near the middle.

    steps int64 (n + 1,) are the sums of the u lightest weights.
    """
    low: Any = 0
    high: Any = len(steps) - 2
    while low < high:
        at = (low + high) // 2
        if steps[at] < middle:
            low = at + 1
        else:
            high = at
    slope = steps[low + 1] - steps[low]
    return slope, slope * low - steps[low]


@compiled(inline="always")
def next_light(
    words: Array, levels: Array, unsure: Any, begin: int, end: int, queries: Array, i: int, masks: Array, worth: Array,
    b: int, slope: Any, reach: Any, sums: Array,
) -> tuple[Any, Any]:  # fmt: skip
    """Return where the next 64 codes begin of which some may be within reach of query i, and which, as bits.

    From the end on there are none. sums (64,) is overwritten.

    levels  (r, c) one row of levels of each code, without rows where they have none
    unsure  None, or for codes with several rows what the slope is multiplied by (c,); levels are not looked at then
    """
    at, whole = np.uintp(begin), np.uintp(min(end, max(words.shape[1] - RUN + 1, 0)))
    hits, n_words = np.uint64(0), words.shape[0]
    while at < whole and hits == 0:
        for row in range(n_words):
            _add(words, row, at, queries[i, row], masks, worth, b, row, sums)
        if unsure is not None:
            _add_levels(unsure, at, slope, sums)
        else:
            for row in range(levels.shape[0]):
                _add(levels, row, at, queries[i, n_words + row], masks, worth, b, n_words + row, sums)
        hits = _within(sums, reach)
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
def _add(
    words: Array, row: int, begin: Any, word: Any, masks: Array, worth: Array, b: int, place: int, sums: Array
) -> None:
    """Add bounds of what 64 words of a row weigh, by the masks at a place, to the sums; those at the first set them."""
    r, at = np.uintp(row), np.uintp(begin)
    light, heavy, low, high = masks[b, place, 0], masks[b, place, 1], worth[b, place, 0], worth[b, place, 1]
    if place == 0:
        for j in range(np.uintp(RUN)):
            x = words[r, at + j] ^ word
            sums[j] = popcount(x & light) * low + popcount(x & heavy) * high
    else:
        for j in range(np.uintp(RUN)):
            x = words[r, at + j] ^ word
            sums[j] += popcount(x & light) * low + popcount(x & heavy) * high


@compiled(inline="always")
def _add_levels(unsure: Array, begin: Any, slope: Any, sums: Array) -> None:
    """Add what the levels of 64 codes weigh by the tangent."""
    at, each = np.uintp(begin), sums.dtype.type(slope)
    for j in range(np.uintp(RUN)):
        sums[j] += each * unsure[at + j]


@compiled(inline="always")
def _within(sums: Array, reach: Any) -> Any:
    """Return which of 64 sums are within reach, as bits; mostly none is, which is quicker to see."""
    of_sums = sums.dtype.type  # what is as wide becomes vector instructions
    hits, most, some, one, none = np.uint64(0), of_sums(reach), of_sums(0), of_sums(1), of_sums(0)
    for j in range(np.uintp(RUN)):
        some |= one if sums[j] <= most else none
    if some:
        for j in range(np.uintp(RUN)):
            hits |= np.uint64(sums[j] <= most) << np.uint64(j)
    return hits
