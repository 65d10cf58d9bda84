"""Compiled search by radius, by weighted distances (see `weighing`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled
from dmuh.index.keeping import CHUNK, sort
from dmuh.index.shell_bounds import bound_shells
from dmuh.index.soft_scan import weigh_codes, weigh_levels

Array = NDArray[Any]


@compiled()
def visit_within(
    words: Array, levels: Array, shells: Any, starts: Array, ids: Array, living: Array, queries: Array, masks: Array,
    weights: Array, lower: Array, radii: Array, turns: Array, first: int, last: int, slots: Array, distances: Array,
    found: Array,
) -> None:  # fmt: skip
    """Count the ids within the radius of the queries first…last at each distance, or write them.

    Arguments are those of `nearest_in_shells`; levels has no rows for codes without levels, and shells are None for
    codes or rows that stand in none.

    radii  int64 (q,) in weighted distance; less than 0: nothing is within it
    slots  int64 (q, more than the largest radius) is raised by one for each id at its distance. Where `found` and
           `distances` are not empty, that is where the turned id is written before: slots begin as where the first
           one goes.
    """
    weighed = np.empty(CHUNK, np.int32)
    edges = np.zeros((1, 2), np.int64)
    edges[0, 1] = words.shape[1]
    for i in range(first, last):
        if radii[i] < 0:
            continue
        if shells is not None:
            edges = _edges(words, shells, queries, weights, lower, i, radii[i])
        for piece in range(len(edges)):
            for begin in range(edges[piece, 0], edges[piece, 1], CHUNK):
                end = min(begin + CHUNK, edges[piece, 1])
                weigh_codes(words, begin, end, queries[i], masks[i], weighed, 0)
                weigh_levels(levels, begin, end, queries[i], masks[i], True, weighed, 0)
                for j in range(begin, end):
                    d: Any = np.int64(weighed[j - begin])
                    if d <= radii[i]:
                        _take(j, d, starts, ids, living, turns[i], slots[i], distances, found)


@compiled()
def _edges(words: Array, shells: Any, queries: Array, weights: Array, lower: Array, i: int, radius: Any) -> Array:
    """Return where the rows of each shell that may be within a radius of query i begin and end: int64 (s, 2)."""
    lacking, _, begins, runs, shortest, _, _, _ = shells
    n, n_bits = len(shortest), lower.shape[2]
    coarse = np.zeros((1, words.shape[0], 3), words.dtype)
    bits, steps = np.zeros(n_bits + 1, np.int32), np.zeros((weights.shape[1] - 1) * n_bits + 1, np.int32)
    bases, bounds, guesses = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    sums = np.empty(n, words.dtype)
    bound_shells(shells, queries, weights, lower, i, coarse, bits, steps, sums, bases, bounds, guesses)
    edges = np.empty((n, 2), np.int64)
    for s in range(n):
        run = runs[s]
        while run < runs[s + 1] and bases[s] + steps[lacking[run]] <= radius:
            run += 1
        edges[s, 0], edges[s, 1] = begins[s], min(begins[s] + (run - runs[s]) * RUN, begins[s + 1])
    return edges


@compiled()
def _take(
    row: int, d: int, starts: Array, ids: Array, living: Array, turn: Any, slots: Array, distances: Array, found: Array
) -> None:
    """Count or write the ids of one row."""
    begin = starts[row] if len(starts) else row
    end = starts[row + 1] if len(starts) else row + 1
    for e in range(begin, end):
        if len(living) == 0 or living[e]:
            if len(found):
                found[slots[d]], distances[slots[d]] = ids[e] - turn, d
            slots[d] += 1


@compiled()
def sort_ties(edges: Array, first: int, last: int, found: Array) -> None:
    """Sort the ids between each two edges (first…last + 1)."""
    for at in range(first, last):
        if edges[at + 1] - edges[at] > 1:
            sort(found[edges[at] : edges[at + 1]])
