"""Multi-index hashing: exact search that looks only where near codes can be.

A code is cut into parts of 16 bits, and for each part all codes are filed under its value. Two codes that differ in at
most m·(s+1) - 1 bits agree in one of their m parts up to s bits. So the files whose value is within s bits of the
query's, for s = 0, 1, …, hold all codes up to that distance; once these have k ids, the search is over. Learned codes
are near their neighbours, and few files suffice. Where they do not, the scan is quicker, and takes over.

After Norouzi, Punjani and Fleet, Fast search in Hamming space with multi-index hashing, 2012.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.compiled import compiled, popcount
from dmuh.index.hash_table import order_by
from dmuh.index.scan import distance, lowered, n_ids, order, wider

PART = 16  # bits of a part
_FILES = 1 << PART
_FILE_COST = 150  # what opening a file costs, in codes scanned
_WORTH = 4  # files are looked at while that costs at most this fraction (1/4) of a scan

Array = NDArray[Any]


def _values_by_weight() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all values of a part ordered by how many ones they have, and where each number of ones begins."""
    ones = np.bitwise_count(np.arange(_FILES, dtype=np.uint32)).astype(np.int64)
    starts, values = order_by(ones, PART + 1)
    return values, starts


@dataclass(frozen=True, eq=False)
class Tables:
    """All codes, filed once for each of their m parts.

    words   (m, w, c) the codes in the order of each part's files
    codes   int32 or int64 (m, c) which code each is
    starts  int64 (m, 65537) where each file begins
    """

    words: NDArray[Any]
    codes: NDArray[Any]
    starts: NDArray[np.int64]
    flips: NDArray[np.int64]  # all differences of a part, those with fewest ones first
    flip_starts: NDArray[np.int64]

    @classmethod
    def build(cls, words: NDArray[Any], n_bits: int) -> "Tables":
        """File the codes (w, c) by each of their parts; the last bits may be a shorter part."""
        n_parts = -(-n_bits // PART)
        filed = np.empty((n_parts, *words.shape), words.dtype)
        which = np.empty((n_parts, words.shape[1]), np.int32 if words.shape[1] < 2**31 else np.int64)
        starts = np.empty((n_parts, _FILES + 1), np.int64)
        for part in range(n_parts):
            starts[part], rows = order_by(_part(words, part), _FILES)
            which[part] = rows
            filed[part] = words[:, rows]
        return cls(filed, which, starts, *_values_by_weight())


def _part(words: NDArray[Any], part: int) -> NDArray[np.int64]:
    per_word = 8 * words.dtype.itemsize // PART
    shift = np.array(PART * (part % per_word), words.dtype)
    values = (words[part // per_word] >> shift) & np.array(_FILES - 1, words.dtype)
    return np.asarray(values, np.int64)


@compiled()
def nearest_in_tables(
    table_words: Array, table_codes: Array, table_starts: Array, flips: Array, flip_starts: Array, starts: Array,
    ids: Array, alive: Array, living: Array, queries: Array, first: int, last: int, n_bits: int, turns: Array,
    distances: Array, found: Array, done: Array,
) -> None:  # fmt: skip
    """Find the k nearest ids of the queries first…last as `nearest` does; done[i] says whether query i was finished."""
    n_parts, n_codes = table_codes.shape
    k = found.shape[1]
    per_word = (64 if n_bits > 32 else 32) // 16
    codes = np.empty((1, 4 * k + 4096), np.int64)
    away = np.empty((1, 4 * k + 4096), np.int32)
    counts = np.zeros(n_bits + 2, np.int64)
    for i in range(first, last):
        for bit in range(n_bits + 2):
            counts[bit] = 0
        n_near, looked, limit, nearer = 0, 0, n_bits, 0  # as in the scan: what is beyond the limit is not needed
        done[i] = False
        for s in range(17):
            if s:  # what this step would cost
                for part in range(n_parts):
                    value = _value(queries, i, part, per_word)
                    for at in range(flip_starts[s], flip_starts[s + 1]):
                        file = value ^ flips[at]
                        looked += _FILE_COST + table_starts[part, file + 1] - table_starts[part, file]
                if looked * _WORTH > n_codes:
                    break
            for part in range(n_parts):
                value = _value(queries, i, part, per_word)
                words = table_words[part]
                for at in range(flip_starts[s], flip_starts[s + 1]):
                    file = value ^ flips[at]
                    for row in range(table_starts[part, file], table_starts[part, file + 1]):
                        d = np.int64(distance(words, row, queries, i))
                        if d > limit or _shown_before(words, row, queries, i, part, s, n_parts, per_word):
                            continue
                        j = np.int64(table_codes[part, row])
                        n = n_ids(starts, alive, j)
                        if n > 0:
                            if n_near == codes.shape[1]:
                                codes, away = wider(codes), wider(away)
                            codes[0, n_near], away[0, n_near] = j, d
                            n_near += 1
                            limit, nearer = lowered(limit, nearer, counts, d, n, k)
            # all codes up to this distance have been compared
            if limit <= n_parts * (s + 1) - 1 and nearer + counts[limit] >= k:
                done[i] = True
                break
        if done[i]:
            order(starts, ids, living, codes[0], away[0], n_near, counts, limit, k, turns[i], distances[i], found[i])


@compiled(inline="always")
def _value(queries: Array, i: int, part: int, per_word: int) -> Any:
    """Return a part of query i."""
    return np.int64((np.uint64(queries[part // per_word, i]) >> np.uint64(16 * (part % per_word))) & np.uint64(0xFFFF))


@compiled()
def _shown_before(
    words: Array, row: int, queries: Array, i: int, part: int, s: int, n_parts: int, per_word: int
) -> bool:
    """Return whether a file before showed the code: a part differs in fewer than s bits, or an earlier one in s."""
    for p in range(part if s == 0 else n_parts):
        w, shift = p // per_word, np.uint64(16 * (p % per_word))
        d = np.int64(popcount((np.uint64(words[w, row] ^ queries[w, i]) >> shift) & np.uint64(0xFFFF)))
        if d < s or (d == s and p < part):
            return True
    return False
