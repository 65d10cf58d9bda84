"""Compiled search by radius, by Hamming distance, in cells (see `cells`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.cells import RUN
from dmuh.index.compiled import compiled, lowest_one
from dmuh.index.keeping import n_ids, sort
from dmuh.index.scan import ONE, distance, next_near

Array = NDArray[Any]


@compiled()
def count_within(
    words: Array, centres: Array, begins: Array, ends: Array, starts: Array, alive: Array, queries: Array, first: int,
    last: int, radius: int, counts: Array,
) -> None:  # fmt: skip
    """Count the ids at each distance up to the radius: counts int64 (q, radius + 1) for the queries first…last.

    The other arguments are those of `scan.nearest`.
    """
    for i in range(first, last):
        for cell in range(centres.shape[1]):
            begin, end = _matters(centres, begins, ends, cell, queries, i, radius)
            run = begin
            while run < end:
                run, hits = next_near(words, run, end, queries, i, radius)
                while hits:
                    j = run + np.int64(lowest_one(hits))
                    hits &= hits - ONE
                    d = distance(words, j, queries, i)
                    if d <= radius:
                        counts[i, d] += n_ids(starts, alive, j)
                run += RUN


@compiled(inline="always")
def _matters(
    centres: Array, begins: Array, ends: Array, cell: int, queries: Array, i: int, radius: int
) -> tuple[Any, Any]:
    """Return where the rings of a cell begin and end that may be within the radius of a query."""
    far = distance(centres, cell, queries, i)
    return begins[cell, min(max(far - radius, 0), begins.shape[1] - 1)], ends[
        cell, min(far + radius, ends.shape[1] - 1)
    ]


@compiled()
def collect_within(
    words: Array, centres: Array, begins: Array, ends: Array, starts: Array, ids: Array, living: Array, queries: Array,
    turns: Array, first: int, last: int, radius: int, place: Array, distances: Array, found: Array,
) -> None:  # fmt: skip
    """Write the ids within the radius, turned, in the order of (distance, turned id).

    place int64 (q, radius + 2) says where in `found` those of each query and distance begin.
    """
    upto = np.empty(radius + 1, np.int64)
    for i in range(first, last):
        for away in range(radius + 1):
            upto[away] = place[i, away]
        for cell in range(centres.shape[1]):
            begin, end = _matters(centres, begins, ends, cell, queries, i, radius)
            run = begin
            while run < end:
                run, hits = next_near(words, run, end, queries, i, radius)
                while hits:
                    j = run + np.int64(lowest_one(hits))
                    hits &= hits - ONE
                    d = distance(words, j, queries, i)
                    if d <= radius:
                        _write(starts, ids, living, j, turns[i], upto, d, found)
                run += RUN
        for away in range(radius + 1):
            if place[i, away + 1] - place[i, away] > 1:
                sort(found[place[i, away] : place[i, away + 1]])
            for at in range(place[i, away], place[i, away + 1]):
                distances[at] = away


@compiled(inline="always")
def _write(starts: Array, ids: Array, living: Array, j: int, turn: Any, upto: Array, d: int, found: Array) -> None:
    """Write the turned ids of a code to where those at its distance end."""
    begin = starts[j] if len(starts) else j
    end = starts[j + 1] if len(starts) else j + 1
    for e in range(begin, end):
        if len(living) == 0 or living[e]:
            found[upto[d]] = ids[e] - turn
            upto[d] += 1
