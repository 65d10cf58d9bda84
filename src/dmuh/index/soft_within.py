"""Compiled search by radius, by weighted distances (see `weighing`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled
from dmuh.index.keeping import CHUNK, sort
from dmuh.index.soft_scan import weigh_codes, weigh_levels

Array = NDArray[Any]


@compiled()
def visit_within(
    words: Array, rows: Array, levels: Array, starts: Array, ids: Array, living: Array, queries: Array, masks: Array,
    radii: Array, turns: Array, first: int, last: int, slots: Array, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Count the ids within the radius of the queries first…last at each distance, or write them.

    Arguments are those of `nearest_soft`; rows is empty where every code has one, levels has no rows for codes
    without levels.

    radii  int64 (q,) in weighted distance; less than 0: nothing is within it
    slots  int64 (q, more than the largest radius) is raised by one for each id at its distance. Where `found` and
           `distances` are not empty, that is where the turned id is written before: slots begin as where the first
           one goes.
    """
    bounds = np.empty(CHUNK, np.int32)
    weighed = np.empty(CHUNK, np.int32)
    for i in range(first, last):
        for begin in range(0, words.shape[1] if radii[i] >= 0 else 0, CHUNK):
            end = min(begin + CHUNK, words.shape[1])
            weigh_codes(words, begin, end, queries[i], masks[i], bounds, 0)
            if len(rows) == 0:
                weigh_levels(levels, begin, end, queries[i], masks[i], True, bounds, 0)
            for j in range(begin, end):
                bound: Any = np.int64(bounds[j - begin])
                if bound > radii[i]:
                    continue
                if len(rows) == 0:
                    _take(j, bound, starts, ids, living, turns[i], slots[i], distances, found)
                    continue
                for row in range(rows[j], rows[j + 1], CHUNK):
                    stop = min(row + CHUNK, rows[j + 1])
                    weigh_levels(levels, row, stop, queries[i], masks[i], False, weighed, 0)
                    for at in range(row, stop):
                        d = bound + np.int64(weighed[at - row])
                        if d <= radii[i]:
                            _take(at, d, starts, ids, living, turns[i], slots[i], distances, found)


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
