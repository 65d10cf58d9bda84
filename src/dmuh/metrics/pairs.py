"""Every query against every database code: counts per distance, or ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import as_words
from dmuh.index.grouping import group, in_key_order
from dmuh.index.kernel_use import KernelUse
from dmuh.machine.workers import over_cores
from dmuh.metrics import plain
from dmuh.metrics.figures import Figures, Rules

_WORTH_GROUPING = 0.7  # share of distinct (code, labels) below which working on each once pays
RANKING = 5  # what ranking a pair costs by numpy, in pairs compared
_COUNTING, _IN_ORDER = ("count_pairs", "count_labelled_pairs"), "rank_in_order"  # the compiled passes
_SHORT_RUN = 16  # images with equal labels below which deciding relevance pair by pair is quicker

Ints = NDArray[np.int64]
Labels = NDArray[Any]

KERNELS = KernelUse("dmuh.metrics.rehearsal:rehearsals")


def count(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels) -> tuple[Ints, Ints]:
    """Return how many database items, and how many relevant ones, stand at each distance: two arrays (queries, K + 1).

    Queries with the same code and the same labels are counted once, and by the compiled passes database images too.
    """
    wanted, labels = label_words(query_labels), label_words(database_labels)
    queries, words = as_words(query), as_words(database)
    distinct = group(np.concatenate([queries.astype(np.uint64), wanted.T]))
    queries, wanted = np.ascontiguousarray(queries[:, distinct.first]), wanted[distinct.first]
    counts = np.zeros((len(distinct), 2, query.n_bits + 1), np.int64)
    if len(database) and KERNELS.worth(words.dtype, len(distinct) * words.size, *_COUNTING):
        from dmuh.metrics.kernels import count_labelled_pairs, count_pairs

        by_set, given = arranged(words, labels)
        kernel: Callable[..., None] = count_pairs if by_set else count_labelled_pairs
        over_cores(lambda first, last: kernel(*given, queries, wanted, first, last, counts), len(distinct))
        KERNELS.note_ready(words.dtype, kernel.__name__)
    else:
        plain.count_pairs(words, labels, queries, wanted, counts)
    every = counts[distinct.of]
    return every.sum(axis=1), every[:, 1]


def arranged(words: NDArray[Any], labels: NDArray[np.uint64]) -> tuple[bool, tuple[NDArray[Any], ...]]:
    """Arrange the database, words (w, n) and labels (n, l), for a compiled pass.

    Return True and words, weights, starts and sets for a pass that goes by label sets, such as `count_pairs`, or else
    False and words and labels (l, n) for one that decides relevance pair by pair, such as `count_labelled_pairs`.
    """
    n = len(labels)
    sets = group(np.ascontiguousarray(labels.T))
    set_of, weights = sets.of, np.empty(0, np.uint32)
    same = group(np.concatenate([words.astype(np.uint64, copy=False), set_of[None].astype(np.uint64)]))
    if len(same) < _WORTH_GROUPING * n:
        words, set_of, weights = words[:, same.first], set_of[same.first], np.diff(same.starts).astype(np.uint32)
    elif len(sets) * _SHORT_RUN > n:
        return False, (words, np.ascontiguousarray(labels.T))
    starts, order = in_key_order(set_of, len(sets))
    weights = weights[order] if len(weights) else weights
    return True, (np.ascontiguousarray(words[:, order]), weights, starts, labels[sets.first])


def expect(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, rules: Rules) -> Figures:
    """Return the figures of each query in the mean over all orders of ties."""
    total, good = count(query, database, query_labels, database_labels)
    return Figures.of_counts(total, good, rules)


def rank(
    query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, rules: Rules, begins: Ints
) -> Figures:
    """Return the figures of each query with ties in the order of the database, from its position `begins` (q,) on."""
    wanted, labels = label_words(query_labels), label_words(database_labels)
    queries, words = as_words(query), as_words(database)
    found = Figures.zeros(len(query), rules)
    if not len(database):
        return found
    counts = np.zeros((len(query), 2, query.n_bits + 1), np.int64)
    results = found.average, found.hits, counts
    options = rules.cut, rules.most
    if KERNELS.worth(words.dtype, RANKING * len(query) * words.size, _IN_ORDER):
        from dmuh.metrics.kernels import rank_in_order

        sets = group(np.ascontiguousarray(labels.T))
        ascending = np.argsort(rules.ranks, kind="stable")
        given = words, sets.of, labels[sets.first], queries, wanted, begins
        ranks = rules.ranks[ascending]
        over_cores(lambda a, b: rank_in_order(*given, a, b, *options, ranks, *results), len(query))
        found.hits[:, ascending] = found.hits.copy()
        KERNELS.note_ready(words.dtype, _IN_ORDER)
    else:
        plain.rank_in_order(words, labels, queries, wanted, begins, *options, rules.ranks, *results)
    return Figures.of_ranking(counts.sum(axis=1), counts[:, 1], rules, found.average, found.hits)


def label_words(labels: Labels) -> NDArray[np.uint64]:
    """Return each row of a 0/1 matrix as bits: uint64 (n, l), an even number of words, as the passes like it."""
    packed = np.packbits(labels.astype(bool, copy=False), axis=1, bitorder="little")
    padded = np.zeros((len(labels), max(1, -(-packed.shape[1] // 16)) * 16), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
