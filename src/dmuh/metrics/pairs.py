"""Every query against every database code: counts per distance, or ranks, by the compiled passes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import as_words
from dmuh.index.grouping import group, order_by
from dmuh.metrics.kernels import count_labelled_pairs, count_pairs, rank_in_order
from dmuh.workers import over_cores

_WORTH_GROUPING = 0.7  # share of distinct (code, labels) below which working on each once pays
_SHORT_RUN = 16  # images with equal labels below which deciding relevance pair by pair is quicker

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Labels = NDArray[Any]


def count(query: Codes, database: Codes, wanted: Labels, given: Labels) -> tuple[Ints, Ints]:
    """Return how many database items, and how many relevant ones, stand at each distance: two arrays (queries, K + 1).

    Images with the same code and the same labels are counted once, with their number, and queries asked once.
    """
    asked = _label_words(wanted)
    queries = as_words(query)
    asking = group(np.concatenate([queries.astype(np.uint64), asked.T]))
    queries, asked = np.ascontiguousarray(queries[:, asking.first]), asked[asking.first]
    counts = np.zeros((len(asking), 2, query.n_bits + 1), np.int64)
    if len(database):
        over_cores(_pass_over(database, given, queries, asked, counts), len(asking))
    every = counts[asking.of]
    return every.sum(axis=1), every[:, 1]


def _pass_over(
    database: Codes, given: Labels, queries: NDArray[Any], asked: NDArray[np.uint64], counts: Ints
) -> Callable[[int, int], None]:
    """Arrange the database for the pass that suits it, and return that pass over a range of queries."""
    words, labels = as_words(database), _label_words(given)
    sets = group(np.ascontiguousarray(labels.T))
    its_set, weights = sets.of, np.empty(0, np.uint32)
    same = group(np.concatenate([words.astype(np.uint64, copy=False), its_set[None].astype(np.uint64)]))
    if len(same) < _WORTH_GROUPING * len(database):
        words, its_set, weights = words[:, same.first], its_set[same.first], np.diff(same.starts).astype(np.uint32)
    elif len(sets) * _SHORT_RUN > len(database):
        columns = np.ascontiguousarray(labels.T)
        return lambda first, last: count_labelled_pairs(words, columns, queries, asked, first, last, counts)
    starts, order = order_by(its_set, len(sets))
    ordered, weights = np.ascontiguousarray(words[:, order]), weights[order] if len(weights) else weights
    distinct = labels[sets.first]
    return lambda first, last: count_pairs(ordered, weights, starts, distinct, queries, asked, first, last, counts)


def rank(
    query: Codes, database: Codes, wanted: Labels, given: Labels, cut: int, by_retrieved: bool, ranks: Ints
) -> tuple[Ints, Ints, Floats, Floats]:
    """Rank by (distance, position); return counts as `count` does, average precision and the hits at the ranks."""
    labels, asked = _label_words(given), _label_words(wanted)
    sets = group(np.ascontiguousarray(labels.T))
    words, queries, distinct = as_words(database), as_words(query), labels[sets.first]
    counts = np.zeros((len(query), 2, query.n_bits + 1), np.int64)
    average, hits = np.zeros(len(query)), np.zeros((len(query), len(ranks)))
    ascending = np.argsort(ranks, kind="stable")
    sorted_hits = np.zeros_like(hits)

    def pass_over(first: int, last: int) -> None:
        rank_in_order(
            words, sets.of, distinct, queries, asked, first, last, cut, by_retrieved, ranks[ascending], average,
            sorted_hits, counts,
        )  # fmt: skip

    if len(database):
        over_cores(pass_over, len(query))
    hits[:, ascending] = sorted_hits
    return counts.sum(axis=1), counts[:, 1], average, hits


def _label_words(labels: Labels) -> NDArray[np.uint64]:
    """Return each row of a 0/1 matrix as bits: uint64 (n, l), an even number of words, as the passes like it."""
    packed = np.packbits(labels.astype(bool, copy=False), axis=1, bitorder="little")
    padded = np.zeros((len(labels), max(1, -(-packed.shape[1] // 16)) * 16), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
