"""How good a ranking by Hamming distance is: MAP, precision and recall at k, precision–recall, hash lookup.

With K bits there are only K + 1 distances, so most of a ranking is ties, and a figure means nothing until it says what
order ties are in. Two rules have names:

    expected      the exact mean over all orders of the ties; needs only the counts per distance, no sorting
    index-order   ties in the order of the database, as a stable sort leaves them

Two denominators of AP@k have names too: `retrieved` divides by the relevant items among the first k (the habit of the
papers), `relevant` by min(R, k). Without a cut-off they are the same. A query with no relevant item counts as 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.codes import Codes
from dmuh.errors import DtypeError, InputError
from dmuh.index.hamming import as_words, hamming

Ties = Literal["expected", "index-order"]
Denominator = Literal["retrieved", "relevant"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1 << 23  # query-database pairs held at once
_CURVE_POINTS = 200


@dataclass(frozen=True, eq=False)
class Metrics:
    """What `evaluate` measured; every figure is a mean over all queries and follows the named rules."""

    map: float
    average_precision: Floats  # (queries,)
    precision_at: dict[int, float]
    recall_at: dict[int, float]
    precision_recall: tuple[Floats, Floats, Ints]  # recall, precision, and the ranks at which both were taken
    precision_within_radius: float  # a query that finds nothing within the radius counts as 0
    queries_without_match: int  # … and how many these are
    queries_without_relevant: int
    radius: int
    topk: int | None
    ties: Ties
    denominator: Denominator
    n_queries: int
    n_database: int
    n_bits: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        recall, precision, ranks = self.precision_recall
        return vars(self) | {
            "average_precision": self.average_precision.tolist(),
            "precision_recall": {
                "rank": ranks.tolist(),
                "recall": recall.tolist(),
                "precision": precision.tolist(),
            },
        }


def evaluate(
    query: Codes,
    database: Codes,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    topk: int | None = None,
    ties: Ties = "expected",
    denominator: Denominator = "retrieved",
    ks: Sequence[int] = (1, 5, 10, 50, 100, 500, 1000, 5000),
    radius: int = 2,
) -> Metrics:
    """Rank the database for each query and measure the ranking; two images are relevant when they share a label.

    Labels are 0/1 matrices (images, classes). `topk` cuts the ranking for MAP (None: all of it); `ks` are the cut-offs
    of precision@k and recall@k, where a k beyond the database means all of it.
    """
    wanted, given = _checked_labels(query, database, query_labels, database_labels)
    if ties not in ("expected", "index-order"):
        raise InputError(f"ties must be 'expected' or 'index-order', got {ties!r}")
    if denominator not in ("retrieved", "relevant"):
        raise InputError(f"denominator must be 'retrieved' or 'relevant', got {denominator!r}")
    for name, low, values in (
        ("topk", 1, [1 if topk is None else topk]),
        ("ks", 1, ks),
        ("radius", 0, [radius]),
    ):
        if any(value < low for value in values):
            raise InputError(f"{name} must be at least {low}, got {min(values)}")

    n = len(database)
    cut = n if topk is None else min(topk, n)
    curve = np.unique(np.geomspace(1, max(n, 1), _CURVE_POINTS).round().astype(np.int64))
    ranks = np.concatenate([np.minimum(np.asarray(ks, np.int64), n), np.minimum(curve, n)])
    precisions, hits, found, right, relevants = [], [], [], [], []
    for distances, relevant in _blocks(query, database, wanted, given):
        total, good = _counts(distances, relevant, query.n_bits)
        if ties == "expected":
            precisions.append(_expected_ap(total, good, cut, denominator))
            hits.append(_expected_hits(total, good, ranks))
        else:
            ranked = np.take_along_axis(relevant, np.argsort(distances, axis=1, kind="stable"), axis=1)
            precisions.append(_ranked_ap(ranked, cut, denominator))
            running = np.cumsum(ranked, axis=1, dtype=np.int64)
            hits.append(np.concatenate([np.zeros((len(running), 1)), running], axis=1)[:, ranks])
        found.append(total[:, : radius + 1].sum(axis=1))
        right.append(good[:, : radius + 1].sum(axis=1))
        relevants.append(good.sum(axis=1))
    average = np.concatenate([np.empty(0), *precisions])
    hit = np.concatenate([np.empty((0, len(ranks))), *hits])
    near, near_right, n_relevant = (np.concatenate([np.empty(0), *parts]) for parts in (found, right, relevants))

    precision = _mean(hit / np.maximum(ranks, 1))
    recall = _mean(hit / np.maximum(n_relevant, 1)[:, None])
    n_ks = len(ks)
    return Metrics(
        map=float(average.mean()) if len(average) else 0.0,
        average_precision=average,
        precision_at={int(k): float(value) for k, value in zip(ks, precision[:n_ks], strict=True)},
        recall_at={int(k): float(value) for k, value in zip(ks, recall[:n_ks], strict=True)},
        precision_recall=(recall[n_ks:], precision[n_ks:], curve),
        precision_within_radius=float(_mean(near_right / np.maximum(near, 1))),
        queries_without_match=int((near == 0).sum()),
        queries_without_relevant=int((n_relevant == 0).sum()),
        radius=radius,
        topk=topk,
        ties=ties,
        denominator=denominator,
        n_queries=len(query),
        n_database=n,
        n_bits=query.n_bits,
    )


def _expected_ap(total: Ints, good: Ints, cut: int, denominator: Denominator) -> Floats:
    """Average precision (queries,) in the mean over all orders of ties, from counts per distance (queries, K + 1).

    The j-th place of a group of t items, r of them relevant, behind T items of which R are relevant, is relevant with
    probability r/t; if so, (j-1)(r-1)/(t-1) relevant items of the group are expected before it. Its share of AP is
    therefore r/t · (R + 1 + (j-1)·b) / (T + j) with b = (r-1)/(t-1); the sum over j is a harmonic number.
    """
    before = np.cumsum(total, axis=1) - total  # T
    good_before = np.cumsum(good, axis=1) - good  # R
    taken = np.clip(cut - before, 0, total)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, total.sum(axis=1).max(initial=0) + 1))])
    share = _group_sum(total, good, before, good_before, taken, harmonic)
    n_good = good.sum(axis=1)
    if denominator == "relevant" or cut >= total.sum(axis=1).max(initial=0):
        whole_ap: Floats = share.sum(axis=1) / np.maximum(np.minimum(n_good, cut), 1)
        return whole_ap

    whole = taken == total
    split = (taken > 0) & ~whole  # the one group that the cut-off divides
    retrieved = (good * whole).sum(axis=1)
    sums = (share * whole).sum(axis=1)
    result: Floats = sums / np.maximum(retrieved, 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total.max(initial=0) + 1)))])
    for row in np.flatnonzero(split.any(axis=1)):
        g = int(split[row].argmax())
        t, r, m = int(total[row, g]), int(good[row, g]), int(taken[row, g])
        # how many of the group's relevant items fall before the cut-off is hypergeometric: condition on it
        x = np.arange(max(0, m - (t - r)), min(r, m) + 1)
        log_chance = _log_choose(r, x, log_factorial) + _log_choose(t - r, m - x, log_factorial)
        chance = np.exp(log_chance - log_chance.max())
        chance /= chance.sum()
        inner = _group_sum(np.full_like(x, m), x, before[row, g], good_before[row, g], np.full_like(x, m), harmonic)
        result[row] = (chance * (sums[row] + inner) / np.maximum(retrieved[row] + x, 1)).sum()
    return result


def _group_sum(total: Ints, good: Ints, before: Ints, good_before: Ints, taken: Ints, harmonic: Floats) -> Floats:
    """Return what the first `taken` places of each group of ties add to the sum of precisions."""
    b = (good - 1) / np.maximum(total - 1, 1)
    steps = harmonic[before + taken] - harmonic[before]
    added: Floats = good / np.maximum(total, 1) * (b * taken + (good_before + 1 - b * (before + 1)) * steps)
    return added


def _log_choose(n: int, k: Ints, log_factorial: Floats) -> Floats:
    log_chance: Floats = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
    return log_chance


def _expected_hits(total: Ints, good: Ints, ranks: Ints) -> Floats:
    """Return the relevant items expected among the first `ranks` (queries, ranks): linear within each group of ties."""
    ends = np.concatenate([np.zeros((len(total), 1), np.int64), np.cumsum(total, axis=1)], axis=1)
    hits = np.concatenate([np.zeros((len(good), 1), np.int64), np.cumsum(good, axis=1)], axis=1)
    return np.stack([np.interp(ranks, e, h) for e, h in zip(ends, hits, strict=True)])


def _ranked_ap(ranked: NDArray[np.bool_], cut: int, denominator: Denominator) -> Floats:
    """Average precision (queries,) of relevance in rank order (queries, database)."""
    top = ranked[:, :cut]
    retrieved = top.sum(axis=1)
    precision = np.cumsum(top, axis=1) / np.arange(1, cut + 1)
    among = retrieved if denominator == "retrieved" else np.minimum(ranked.sum(axis=1), cut)
    result: Floats = (precision * top).sum(axis=1) / np.maximum(among, 1)
    return result


def _counts(distances: NDArray[np.int32], relevant: NDArray[np.bool_], n_bits: int) -> tuple[Ints, Ints]:
    """Return how many items, and how many relevant ones, stand at each distance: two arrays (queries, K + 1)."""
    width = n_bits + 1
    cells = distances + np.arange(len(distances), dtype=np.int64)[:, None] * width
    size = len(distances) * width
    total = np.bincount(cells.ravel(), minlength=size).reshape(-1, width)
    good = np.bincount(cells[relevant], minlength=size).reshape(-1, width)
    return total, good


def _blocks(
    query: Codes, database: Codes, wanted: NDArray[np.float32], given: NDArray[np.float32]
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
    """Yield distances and relevance of a few queries at a time to the whole database."""
    words, all_words = as_words(query), as_words(database)
    step = max(1, _BLOCK // max(len(database), 1))
    for begin in range(0, len(query), step):
        rows = slice(begin, begin + step)
        yield hamming(words[rows], all_words), wanted[rows] @ given.T > 0


def _mean(values: NDArray[Any]) -> Any:
    return values.mean(axis=0) if len(values) else np.zeros(values.shape[1:])


def _checked_labels(
    query: Codes, database: Codes, query_labels: ArrayLike, database_labels: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if query.n_bits != database.n_bits:
        raise InputError(f"query codes have {query.n_bits} bits, database codes {database.n_bits}: they must agree")
    checked = []
    for name, codes, labels in (("query", query, query_labels), ("database", database, database_labels)):
        array = np.asarray(labels)
        if array.ndim != 2 or len(array) != len(codes):
            raise InputError(
                f"{name}_labels must be a 0/1 matrix of {len(codes)} rows (one a code) and one column a class, "
                f"got shape {array.shape}"
            )
        if array.dtype.kind not in "biu":
            raise DtypeError(f"{name}_labels must be whole numbers or booleans, got dtype {array.dtype}")
        if array.size and (array.min() < 0 or array.max() > 1):
            raise InputError(f"{name}_labels must hold 0 and 1 only, got values from {array.min()} to {array.max()}")
        checked.append(array.astype(np.float32))
    if checked[0].shape[1] != checked[1].shape[1]:
        raise InputError(
            f"query_labels have {checked[0].shape[1]} classes, database_labels {checked[1].shape[1]}: they must agree"
        )
    return checked[0], checked[1]
