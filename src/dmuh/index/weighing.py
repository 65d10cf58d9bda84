"""Soft distances as sums of weighted differing bits, which is what the kernels compute.

Write s[k, l] for the weight of bit k at level l of L, and t_i for the bits of level i or above, i = 1 … L-1. A bit adds
UNITS - s[k, l] to the soft distance where query and code are equal, UNITS + s[k, l] where they are not. With x = query
xor code that is the same as

    UNITS - s[k, L-1]  +  (s[k, 0] + s[k, L-1]) · x  +  Σ_i (s[k, i] - s[k, i-1]) · not(x xor t_i)

where no term is negative. The first is the same for all codes; the others are weighted Hamming distances: of the query
to the code, and of the query's opposite to code xor t_i. So each level above the first is a row of words more, and the
distance to the code alone is a bound for all ids that have it. A weighted distance is a sum over the binary digits of
the weights: popcount((query xor row) and mask) · 2^digit, with a mask of the bits whose weight has that digit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import Words, as_words, packed_words, word_type
from dmuh.index.shuffle import turns
from dmuh.index.soft import UNITS, pair_weights

DIGITS = (2 * UNITS).bit_length()  # of a weight at most: the first is a sum of two


def level_rows(codes: Codes) -> Words:
    """Return code xor t_i of each code, level after level: words (r · w, n), r = 0, 1 or 3 for 0, 1 or 2 sure bits."""
    words = as_words(codes)
    if codes.levels is None:
        return np.empty((0, len(codes)), words.dtype)
    planes = [packed_words(codes.levels[:, plane], codes.n_bits) for plane in range(codes.sure)]
    low, high = planes[0], planes[-1]
    above = [low] if len(planes) == 1 else [low | high, high, low & high]
    return np.concatenate([words ^ at_least for at_least in above])


@dataclass(frozen=True, eq=False)
class SoftQueries:
    """Queries as weighted distances need them; a code's rows are its w words, then its level rows.

    words   (q, rows) what is compared with each row
    masks   (q, rows, DIGITS) the bits whose weight has each binary digit
    weights uint8 (q, 1 + levels above the first, n_bits) those of the words, and of the rows of each level
    least   int64 (q,) the soft distance of the best code that there could be, in units
    unit    2 for plain codes, whose distances beyond that are all even and counted in twos, else 1
    most    the largest distance beyond the least, in such steps
    turns   int64 (q,) the order of ties (see `shuffle`)
    """

    words: NDArray[Any]
    masks: NDArray[Any]
    weights: NDArray[np.uint8]
    least: NDArray[np.int64]
    unit: int
    most: int
    turns: NDArray[np.int64]

    @property
    def lower(self) -> NDArray[np.uint8]:
        """The weights of the words without the steps of levels that are in them, 2·s[k, 0]: uint8 (q, 1, n_bits)."""
        steps: NDArray[np.uint8] = self.weights[:, 1:].sum(axis=1, keepdims=True, dtype=np.uint8)
        return self.weights[:, :1] - steps

    @classmethod
    def of(cls, queries: Codes, worth: NDArray[np.float32] | None) -> "SoftQueries":
        """Prepare queries for codes whose levels are worth this (n_bits, levels), None: plain ones."""
        n_bits = queries.n_bits
        pairs = pair_weights(queries, worth)
        if worth is None:
            unit, weights = 2, pairs.transpose(0, 2, 1)
        else:
            steps = np.diff(pairs, axis=2)
            unit, weights = 1, np.concatenate([pairs[:, :, :1] + pairs[:, :, -1:], steps], axis=2).transpose(0, 2, 1)
        masks = _masks(weights, word_type(n_bits))
        own = as_words(queries).T
        words = np.ascontiguousarray(np.concatenate([own, *[~own] * (weights.shape[1] - 1)], axis=1))
        most = weights.sum(axis=(1, 2), dtype=np.int64)
        least = (UNITS - pairs[:, :, -1].astype(np.int64)).sum(axis=1)
        return cls(
            words, masks, np.ascontiguousarray(weights), least, unit, int(most.max(initial=0)), turns(queries, "soft")
        )


def _masks(weights: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the bits of each weight (q, groups, n_bits) that have each binary digit: words (q, groups · w, DIGITS)."""
    n, n_groups, n_bits = weights.shape
    n_words = -(-n_bits // (8 * kind.itemsize))
    padded = np.zeros((n, n_groups, n_words, 1, 8 * kind.itemsize), np.uint8)
    padded.reshape(n, n_groups, -1)[:, :, :n_bits] = weights
    digits = padded & (1 << np.arange(DIGITS, dtype=np.uint8))[:, None]  # (q, groups, w, digits, bits of a word)
    packed = np.packbits(digits.reshape(-1), bitorder="little").view(kind.newbyteorder("<"))
    return packed.astype(kind, copy=False).reshape(n, n_groups * n_words, DIGITS)


def weighted(query: NDArray[Any], masks: NDArray[Any], rows: Words) -> NDArray[np.int32]:
    """Return the weighted distance (n,) of each column of rows (r, n) to a query's words (r,) and masks (r, DIGITS)."""
    total = np.zeros(rows.shape[1], np.int32)
    for word, digits, row in zip(query, masks, rows, strict=True):
        differing = row ^ word
        for digit, mask in enumerate(digits):
            if mask:
                total += np.bitwise_count(differing & mask).astype(np.int32) << digit
    return total
