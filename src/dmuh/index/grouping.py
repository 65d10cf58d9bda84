"""Equal rows found together: learned codes and label sets are few and repeated, and are worked on once each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import read_only
from dmuh.index.kernel_use import KERNELS

_SORTING = 100  # what sorting a word costs by numpy, in pairs compared

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by equal value; groups are numbered in the order in which they first occur.

    of      int64 (n,) the group of each row
    first   int64 (g,) the first row of each group
    starts  int64 (g + 1,) where the rows of each group begin in `rows`
    rows    int64 (n,) all rows, group after group, ascending within each
    """

    of: Ints
    first: Ints
    starts: Ints
    rows: Ints

    def __len__(self) -> int:
        return len(self.first)


def group(words: Array) -> Groups:
    """Group the columns of words (w, n): those with equal words belong together."""
    if not KERNELS.worth(words.dtype, _SORTING * words.size, "group"):
        return _group_by_sorting(words)
    from dmuh.index.hash_table import distinct, order_by

    of, first = distinct(read_only(np.ascontiguousarray(words)))
    grouped = Groups(of, first, *order_by(of, len(first)))
    KERNELS.note_ready(words.dtype, "group")
    return grouped


def in_key_order(keys: Ints, n_keys: int) -> tuple[Ints, Ints]:
    """Sort positions by small whole numbers, stably: where each key begins (n_keys + 1,), and the positions (n,)."""
    if KERNELS.worth(keys.dtype, _SORTING * len(keys), "order"):
        from dmuh.index.hash_table import order_by

        ordered = order_by(keys, n_keys)
        KERNELS.note_ready(keys.dtype, "order")
        return ordered
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_keys))])
    return starts.astype(np.int64, copy=False), np.argsort(keys, kind="stable")


def _group_by_sorting(words: Array) -> Groups:
    n = words.shape[1]
    by_value = np.lexsort(words)  # stable: equal columns stay in their order
    ordered = words[:, by_value]
    begins = np.flatnonzero(np.append(np.ones(min(n, 1), bool), (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))
    by_first = np.argsort(by_value[begins])
    number = np.empty(len(begins), np.int64)
    number[by_first] = np.arange(len(begins))
    of = np.empty(n, np.int64)
    of[by_value] = np.repeat(number, np.diff(np.append(begins, n)))
    starts, rows = in_key_order(of, len(begins))
    return Groups(of, by_value[begins][by_first], starts, rows)
