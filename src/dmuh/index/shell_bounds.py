"""Compiled: how far the rows of shells are from a query at least (see `shells`, and `weighing` for what is weighed).

A row lacks u steps to the highest level, over all of its bits. Where a bit agrees with the query, each step that it
lacks costs what it weighs. Where it differs, the weight of the code has all steps in it, and those that the row has
cost once more. So a row is at least the u lightest steps farther than its code is by the weights without steps; and so
are all rows of the shell after it.

A code of a shell differs from its centre in r bits, from the shortest to the longest. Where query and centre differ in
D bits, it is at least as far as the lightest |D - r| bits weigh, and nearer than the centre by the r heaviest at most.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount
from dmuh.index.soft_coarse import choose_masks, weigh_coarsely

Array = NDArray[Any]


@compiled()
def sum_lightest(weights: Array, i: int, first: int, last: int, sums: Array) -> None:
    """Set sums int32 (n + 1,) to those of the lightest 0 … n of the weights[i] of the groups first…last."""
    n_such = np.zeros(64, np.int64)
    for group in range(first, last):
        for bit in range(weights.shape[2]):
            n_such[weights[i, group, bit]] += 1
    at = 1
    for weight in range(64):
        for _ in range(n_such[weight]):
            sums[at] = sums[at - 1] + weight
            at += 1


@compiled(inline="always")
def differing(words: Array, j: Any, queries: Array, i: int) -> Any:
    """Return in how many bits code j of words (w, c) and query i differ."""
    d, at = np.int64(0), np.uintp(j)
    for w in range(np.uintp(words.shape[0])):
        d += np.int64(popcount(words[w, at] ^ queries[np.uintp(i), w]))
    return d


@compiled()
def bound_shells(
    shells: Any, queries: Array, weights: Array, lower: Array, i: int, masks: Array, bits: Array, steps: Array,
    sums: Array, bases: Array, bounds: Array, guesses: Array,
) -> Any:  # fmt: skip
    """Set what the codes of each shell are away from query i at least, bases int32 (≥ s,), and with levels, bounds.

    shells   what `Graded.shell_arrays` returns
    queries, weights and lower are those of `nearest_in_shells`
    masks    (1, w, 3) is set to those of `choose_masks` for the weights without steps, whose unit is returned
    bits     int32 (n_bits + 1,) is set to the sums of the lightest weights of bits without steps, and steps to those of
             the lightest steps
    guesses  int32 (≥ s,) what the first rows may be away
    sums     (≥ s,) is overwritten
    """
    unit = choose_masks(lower, i, masks, 0)
    sum_lightest(lower, i, 0, 1, bits)
    sum_lightest(weights, i, 1, weights.shape[1], steps)
    _bound(shells, queries, i, masks, unit, bits, steps, sums, bases, bounds, guesses)
    return unit


@compiled(allocates=False)
def _bound(
    shells: Any, queries: Array, i: int, masks: Array, unit: Any, bits: Array, steps: Array, sums: Array,
    bases: Array, bounds: Array, guesses: Array,
) -> None:  # fmt: skip
    """Set the bounds and guesses of `bound_shells`, whose arguments these are."""
    _, centres, _, _, shortest, longest, surest, n_alike = shells
    n_bits, each, every = np.int32(len(bits) - 1), np.int32(unit), bits[np.uintp(len(bits) - 1)]
    weigh_coarsely(centres, 0, centres.shape[1], queries, i, masks, 0, sums)
    for s in range(np.uintp(n_alike)):
        bases[s] = np.int32(sums[s]) * each
        bounds[s] = guesses[s] = bases[s] + steps[np.uintp(surest[s])]
    for s in range(np.uintp(n_alike), np.uintp(centres.shape[1])):
        d, far, near = np.int32(differing(centres, s, queries, i)), longest[s], shortest[s]
        away, heaviest = np.int32(sums[s]) * each, every - bits[np.uintp(n_bits - far)]
        bases[s] = max(away - heaviest, bits[np.uintp(max(d - far, near - d, np.int32(0)))])
        bounds[s] = bases[s] + steps[np.uintp(surest[s])]
        guesses[s] = away + every // n_bits * near + bounds[s] - bases[s]
