"""Soft rankings measured: every query against every database code, a few queries at a time.

With K bits there are 2·UNITS·K + 1 soft distances, too many to keep their counts for all queries: they are made into
figures before the next queries are counted.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import as_words
from dmuh.index.grouping import group
from dmuh.index.planes import plane_masks, planes_of
from dmuh.index.soft import UNITS
from dmuh.machine.workers import over_cores
from dmuh.metrics import plain
from dmuh.metrics.expected import harmonic_numbers
from dmuh.metrics.figures import Figures, Rules
from dmuh.metrics.pairs import KERNELS, RANKING, Ints, Labels, arranged, label_words

_TOGETHER = 64  # queries that are counted before their counts are made into figures
_WEIGHING = 15  # what a soft distance costs by numpy, in pairs compared
_COUNTING, _IN_ORDER = ("count_soft_pairs", "count_soft_labelled_pairs"), "rank_softly_in_order"  # the compiled passes

Array = NDArray[Any]


def expect(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, rules: Rules) -> Figures:
    """Return the figures of each query in the mean over all orders of ties.

    Queries that are alike in all are measured once, and by the compiled passes equal images of the database too.
    """
    planes, labels, wanted = planes_of(database), label_words(database_labels), label_words(query_labels)
    distinct = group(_keys(query, wanted))
    query, wanted = query[distinct.first], wanted[distinct.first]
    found = Figures.zeros(len(query), rules)
    kernel, given = _counting(planes, labels, len(query))
    harmonic = harmonic_numbers(len(database))

    def work(first: int, last: int) -> None:
        for part in _parts(first, last):
            counts = _no_counts(query[part])
            kernel(*given, *plane_masks(query[part], database.worth), wanted[part], counts)
            found.put(part, Figures.of_counts(counts.sum(axis=1), counts[:, 1], rules, harmonic))

    over_cores(work, len(query))
    return found.taken(distinct.of)


def rank(
    query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, rules: Rules, begins: Ints
) -> Figures:
    """Return the figures of each query with ties in the order of the database, from its position `begins` (q,) on."""
    planes, labels, wanted = planes_of(database), label_words(database_labels), label_words(query_labels)
    found = Figures.zeros(len(query), rules)
    if not len(database):
        return found
    ascending = np.argsort(rules.ranks, kind="stable")
    ranks = rules.ranks[ascending]
    kernel, given = _ranking(planes, labels, len(query))

    def work(first: int, last: int) -> None:
        for part in _parts(first, last):
            counts, average, hits = _no_counts(query[part]), found.average[part], found.hits[part]
            asked = *plane_masks(query[part], database.worth), wanted[part], begins[part]
            kernel(*given, *asked, rules.cut, rules.most, ranks, average, hits, counts)
            hits[:, ascending] = hits.copy()
            found.put(part, Figures.of_ranking(counts.sum(axis=1), counts[:, 1], rules, average, hits))

    over_cores(work, len(query))
    return found


def _counting(planes: Array, labels: Array, n_queries: int) -> tuple[Callable[..., None], tuple[Array, ...]]:
    """Return the pass that counts, and the database as it wants it."""
    _, n_words, n = planes.shape
    if not n or not KERNELS.worth(planes.dtype, _WEIGHING * n_queries * planes.size, *_COUNTING):
        return plain.count_soft_pairs, (planes, labels)
    from dmuh.metrics.soft_kernels import count_soft_labelled_pairs, count_soft_pairs

    by_set, (words, *rest) = arranged(planes.reshape(-1, n), labels)
    kernel: Callable[..., None] = count_soft_pairs if by_set else count_soft_labelled_pairs
    KERNELS.note_ready(planes.dtype, kernel.__name__)
    return kernel, (words.reshape(len(planes), n_words, -1), *rest)


def _ranking(planes: Array, labels: Array, n_queries: int) -> tuple[Callable[..., None], tuple[Array, ...]]:
    """Return the pass that ranks, and the database as it wants it."""
    if not KERNELS.worth(planes.dtype, (RANKING + _WEIGHING) * n_queries * planes.size, _IN_ORDER):
        return plain.rank_softly_in_order, (planes, labels)
    from dmuh.metrics.soft_kernels import rank_softly_in_order

    sets = group(np.ascontiguousarray(labels.T))
    KERNELS.note_ready(planes.dtype, _IN_ORDER)
    return rank_softly_in_order, (planes, sets.of, labels[sets.first])


def _parts(first: int, last: int) -> Iterator[slice]:
    return (slice(at, min(at + _TOGETHER, last)) for at in range(first, last, _TOGETHER))


def _no_counts(query: Codes) -> NDArray[np.int64]:
    return np.zeros((len(query), 2, 2 * UNITS * query.n_bits + 1), np.int64)


def _keys(query: Codes, wanted: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return what queries must have in common to be measured alike, as columns (…, q)."""
    keys = [as_words(query).astype(np.uint64), wanted.T]
    unsure = query.uncertainty
    if unsure is not None:
        keys.append(np.ascontiguousarray(unsure.T).view(np.uint32).astype(np.uint64))
    return np.concatenate(keys)
