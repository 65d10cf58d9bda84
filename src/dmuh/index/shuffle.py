"""The order of equal distances: a shuffle of ids, which each query begins elsewhere.

Ids follow the order of files, and so of classes: ties in their order would favour whatever was sorted first. The
shuffle is one to one, so that an index can keep the shuffled ids alone and turn them back when it answers.

In one order for all queries one image would stand first for all that find the same code nearest, and its label would
decide for a whole class. So a query has a turn, a number that depends on its bits and how sure they are alone: ties
are in the order of key - turn, as a whole number of 64 bits that may overflow. What ascends by key then goes round: it
begins somewhere in the middle, and ends before it. Equal queries have equal answers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.soft import UNITS, Ranking, pair_weights

Ids = NDArray[np.int64]

_ADDED = np.uint64(0x632BE59BD9B4E019)  # so that 0 does not stay 0
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, so that there are inverses
_INVERSES = tuple(np.uint64(pow(int(factor), -1, 2**64)) for factor in _FACTORS)
_HALF = np.uint64(32)
_SIGN = np.int64(-(2**63))


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


def turns(queries: Codes, ranking: Ranking) -> Ids:
    """Return the turn int64 (q,) of each query by a ranking: what is subtracted from keys before ties are ordered.

    It depends on the bits and on how sure they are, in the whole units of soft distances, so that what is lost in
    rounding does not change the order; by Hamming distance all are sure.
    """
    sure = np.full((len(queries), queries.n_bits), UNITS, np.uint8)
    if ranking == "soft":
        sure = pair_weights(queries, None)[:, :, 0]
    columns = np.concatenate([queries.bits, sure], axis=1).astype(np.uint64)
    factors = shuffled(np.arange(columns.shape[1])).view(np.uint64)
    return shuffled((columns @ factors).view(np.int64))


def first_of_ties(keys: Ids, turned_by: Ids) -> Ids:
    """Return for each turn (q,) where in ascending keys (n,) the order of ties begins; from there it goes round."""
    return np.searchsorted(keys, turned_by ^ _SIGN) % max(len(keys), 1)
