"""Equal rows found in one pass: learned codes and label sets are few and repeated, and are worked on once each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by equal value; groups are numbered in the order in which they first occur.

    of      int64 (n,) the group of each row
    first   int64 (g,) the first row of each group
    starts  int64 (g + 1,) where the rows of each group begin in `rows`
    rows    int64 (n,) all rows, group after group, ascending within each
    """

    of: NDArray[np.int64]
    first: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)


def group(words: Array) -> Groups:
    """Group the columns of words (w, n): those with equal words belong together."""
    n = words.shape[1]
    size = 1 << max(4, int(2 * n - 1).bit_length())
    of, first = _hash(np.ascontiguousarray(words), np.full(size, -1, np.int64))
    return Groups(of, first, *order_by(of, len(first)))


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
