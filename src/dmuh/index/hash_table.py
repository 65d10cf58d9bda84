"""Compiled grouping of equal columns, in one pass, and sorting by small whole numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled

Array = NDArray[Any]


def distinct(words: Array) -> tuple[Array, Array]:
    """Return the number (n,) of each column of words (w, n) by its value, and the first column of each number (g,)."""
    size = 1 << max(4, int(2 * words.shape[1] - 1).bit_length())
    return _hash(words, np.full(size, -1, np.int64))


@compiled()
def order_by(keys: Array, n_keys: int) -> tuple[Array, Array]:
    """Sort positions by small whole numbers, stably: where each key begins (n_keys + 1,), and the positions (n,)."""
    starts = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for key in range(n_keys):
        starts[key + 1] += starts[key]
    place = starts[:-1].copy()
    order = np.empty(len(keys), np.int64)
    for position in range(len(keys)):
        key = keys[position]
        order[place[key]] = position
        place[key] += 1
    return starts, order


@compiled()
def _hash(words: Array, table: Array) -> tuple[Array, Array]:
    """Give each distinct column of words a number, through an open hash table whose length is a power of two."""
    width, n = words.shape
    mask = np.uint64(len(table) - 1)
    of = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    n_groups = 0
    for j in range(n):
        key = np.uint64(0)
        for w in range(width):
            key = (key ^ np.uint64(words[w, j])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        slot = key & mask
        while True:
            known = table[slot]
            if known < 0:
                table[slot] = n_groups
                first[n_groups] = j
                of[j] = n_groups
                n_groups += 1
                break
            same = True
            for w in range(width):
                if words[w, j] != words[w, first[known]]:
                    same = False
                    break
            if same:
                of[j] = known
                break
            slot = (slot + np.uint64(1)) & mask
    return of, first[:n_groups].copy()
