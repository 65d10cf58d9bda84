"""Compiled weighing of codes, many at a time.

What the weights are, and which rows of words a code has, is said in `weighing`. The loops over a chunk of codes have
no branch and are made of and, popcount and add, so that they become vector instructions.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount
from dmuh.index.weighing import DIGITS

Array = NDArray[Any]


assert DIGITS == 6, "digits are written out below, so that their masks stay in registers"


@compiled(inline="always")
def three(x: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the sum of three binary digits over the ones of x, masks from the lowest digit up."""
    total = popcount(x & c)
    total = total + total + popcount(x & b)
    return total + total + popcount(x & a)


@compiled(inline="always")
def four(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the sum of four binary digits."""
    total = three(x, b, c, d)
    return total + total + popcount(x & a)


@compiled(inline="always")
def five(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Return the sum of five binary digits."""
    total = four(x, b, c, d, e)
    return total + total + popcount(x & a)


@compiled(inline="always")
def six(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Return the sum of six binary digits."""
    total = five(x, b, c, d, e, f)
    return total + total + popcount(x & a)


@compiled(allocates=False)
def weigh(
    rows: Array, r: int, begin: int, n: int, query: Array, masks: Array, at: int, first: bool, out: Array, to: int
) -> None:
    """Add the weighted distances of n words of a row, from `begin` on, to `out` int32 from `to` on.

    They are those to the word `at` of a query (rows,), by the masks (rows, DIGITS) there; the first row sets `out`.

    Places are unsigned, here and below: numba would look for negative ones, and take the words one by one. Arrays are
    not cut, which takes longer than it takes to weigh a few.
    """
    row, j, o, last = np.uintp(r), np.uintp(begin), np.uintp(to), np.uintp(n)
    word = query[at]
    a, b, c, d, e, f = masks[at, 0], masks[at, 1], masks[at, 2], masks[at, 3], masks[at, 4], masks[at, 5]
    if f != 0 and first:
        for k in range(last):
            out[o + k] = np.int32(six(rows[row, j + k] ^ word, a, b, c, d, e, f))
    elif f != 0:
        for k in range(last):
            out[o + k] += np.int32(six(rows[row, j + k] ^ word, a, b, c, d, e, f))
    elif e != 0 and first:
        for k in range(last):
            out[o + k] = np.int32(five(rows[row, j + k] ^ word, a, b, c, d, e))
    elif e != 0:
        for k in range(last):
            out[o + k] += np.int32(five(rows[row, j + k] ^ word, a, b, c, d, e))
    elif first:
        for k in range(last):
            out[o + k] = np.int32(four(rows[row, j + k] ^ word, a, b, c, d))
    else:
        for k in range(last):
            out[o + k] += np.int32(four(rows[row, j + k] ^ word, a, b, c, d))


@compiled(inline="always")
def weighed_one(words: Array, j: Any, skipped: Any, queries: Array, masks: Array, i: Any) -> Any:
    """Return the weighted distance of column j of words (r, c) to query i, of whose words some are skipped."""
    total, at, q = np.int64(0), np.uintp(j), np.uintp(i)
    for row in range(np.uintp(words.shape[0])):
        r = np.uintp(skipped) + row
        a, b, c, d, e, f = (
            masks[q, r, 0],
            masks[q, r, 1],
            masks[q, r, 2],
            masks[q, r, 3],
            masks[q, r, 4],
            masks[q, r, 5],
        )
        total += np.int64(six(words[row, at] ^ queries[q, r], a, b, c, d, e, f))
    return total


@compiled(inline="always")
def weigh_codes(words: Array, begin: int, end: int, query: Array, masks: Array, out: Array, to: int) -> None:
    """Set `out` from `to` on to the weighted distances of the codes begin…end of words (w, c)."""
    for r in range(words.shape[0]):
        weigh(words, r, begin, end - begin, query, masks, r, r == 0, out, to)


@compiled(inline="always")
def weigh_levels(
    levels: Array, begin: int, end: int, query: Array, masks: Array, add: bool, out: Array, to: int
) -> None:
    """Set `out` from `to` on to those of level rows (r, n), which are a query's last, or add them to what is there."""
    skipped = len(query) - levels.shape[0]
    for r in range(levels.shape[0]):
        weigh(levels, r, begin, end - begin, query, masks, skipped + r, r == 0 and not add, out, to)
