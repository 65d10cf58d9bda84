"""The passes over all pairs by numpy alone, with the results of the compiled ones: for small work.

Counts are whole numbers, and sums are made in the order of the ranking as the compiled pass makes them: both passes
give the same figures to the last bit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.index.bits import distances_to
from dmuh.index.planes import soft_distances_to

Array = NDArray[Any]


def count_pairs(words: Array, labels: Array, queries: Array, query_labels: Array, out: Array) -> None:
    """Count the database by distance and relevance: out[i, relevant, distance].

    words    (w, n) codes of the database, labels uint64 (n, l) their labels as bits
    queries  (w, q) codes of the queries, query_labels uint64 (q, l)
    """
    columns = np.ascontiguousarray(labels.T)
    for i in range(queries.shape[1]):
        out[i] = _counts(distances_to(queries[:, i], words), _relevant(columns, query_labels[i]), out.shape[2])


def rank_in_order(
    words: Array, labels: Array, queries: Array, query_labels: Array, begins: Array, cut: int, most: int,
    ranks: Array, average: Array, hits: Array, out: Array,
) -> None:  # fmt: skip
    """Rank the database by (distance, position) for each query; arguments as above and in the compiled pass."""
    columns = np.ascontiguousarray(labels.T)
    for i in range(queries.shape[1]):
        away, relevant = distances_to(queries[:, i], words), _relevant(columns, query_labels[i])
        out[i] = _counts(away, relevant, out.shape[2])
        average[i] = _rank(np.roll(away, -begins[i]), np.roll(relevant, -begins[i]), cut, most, ranks, hits[i])


def count_soft_pairs(planes: Array, labels: Array, masks: Array, base: Array, query_labels: Array, out: Array) -> None:
    """Count the database by soft distance and relevance: out[i, relevant, distance].

    planes  (1 + sure, w, n) codes of the database and their levels, labels uint64 (n, l) their labels as bits
    masks   (q, w, DIGITS, 2^(1 + sure)), base int64 (q,): of the queries, query_labels uint64 (q, l)
    """
    columns = np.ascontiguousarray(labels.T)
    for i in range(len(masks)):
        away = soft_distances_to(masks[i], base[i], planes)
        out[i] = _counts(away, _relevant(columns, query_labels[i]), out.shape[2])


def rank_softly_in_order(
    planes: Array, labels: Array, masks: Array, base: Array, query_labels: Array, begins: Array, cut: int, most: int,
    ranks: Array, average: Array, hits: Array, out: Array,
) -> None:  # fmt: skip
    """Rank the database by (soft distance, position) for each query; arguments as above."""
    columns = np.ascontiguousarray(labels.T)
    for i in range(len(masks)):
        away, relevant = soft_distances_to(masks[i], base[i], planes), _relevant(columns, query_labels[i])
        out[i] = _counts(away, relevant, out.shape[2])
        average[i] = _rank(np.roll(away, -begins[i]), np.roll(relevant, -begins[i]), cut, most, ranks, hits[i])


def _rank(away: Array, relevant: NDArray[np.bool_], cut: int, most: int, ranks: Array, hits: Array) -> np.float64:
    """Return the average precision of items (n,) by (distance, position); hits (ranks,) are set."""
    ranked = relevant[np.argsort(away, kind="stable")]
    found = np.cumsum(ranked)  # relevant items up to each place
    precisions = np.where(ranked, found / np.arange(1, len(ranked) + 1), 0.0)[:cut]
    total = np.cumsum(precisions)[-1]  # place after place; sum() would add in another order
    among = min(found[-1], most) if most else found[cut - 1]
    hits[:] = found[ranks - 1]
    average: np.float64 = total / max(among, 1)
    return average


def _relevant(columns: Array, wanted: Array) -> NDArray[np.bool_]:
    """Return which images (n,) share a label with a query: columns uint64 (l, n), wanted uint64 (l,)."""
    relevant = np.zeros(columns.shape[1], bool)
    for column, word in zip(columns, wanted, strict=True):
        if word:
            relevant |= (column & word) != 0
    return relevant


def _counts(away: Array, relevant: NDArray[np.bool_], bins: int) -> NDArray[np.int64]:
    """Return how many items (2, bins) are at each distance, by relevance."""
    return np.bincount(away + away.dtype.type(bins) * relevant, minlength=2 * bins).reshape(2, bins)
