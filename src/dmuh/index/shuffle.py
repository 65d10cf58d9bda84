"""A fixed shuffle of ids, by which equal distances are ordered.

Ids follow the order of files, and so of classes: ties in their order would favour whatever was sorted first. The
shuffle is one to one, so that an index can keep the shuffled ids alone and turn them back when it answers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

_ADDED = np.uint64(0x632BE59BD9B4E019)  # so that 0 does not stay 0
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, so that there are inverses
_INVERSES = tuple(np.uint64(pow(int(factor), -1, 2**64)) for factor in _FACTORS)
_HALF = np.uint64(32)


def shuffled(ids: Any) -> Ids:
    """Return the keys int64 (…) of ids int64 (…) by which ties are ordered, ascending; no two ids have the same.

    >>> from dmuh.index import shuffled
    >>> ids = np.arange(8)
    >>> ids[np.argsort(shuffled(ids))]
    array([3, 2, 6, 7, 4, 5, 1, 0])
    """
    keys = np.array(ids, np.int64).view(np.uint64)  # a copy
    keys += _ADDED
    keys *= _FACTORS[0]
    keys ^= keys >> _HALF
    keys *= _FACTORS[1]
    return keys.view(np.int64)


def unshuffled(keys: Ids) -> Ids:
    """Return the ids (…) whose keys these are."""
    ids = np.array(keys, np.int64).view(np.uint64)
    ids *= _INVERSES[1]
    ids ^= ids >> _HALF  # its own inverse, as no half reaches beyond the other
    ids *= _INVERSES[0]
    ids -= _ADDED
    return ids.view(np.int64)
