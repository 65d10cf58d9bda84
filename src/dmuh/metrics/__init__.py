"""How good a ranking by Hamming distance is: MAP, precision and recall at k, precision–recall, hash lookup.

With K bits there are only K + 1 distances, so most of a ranking is ties, and a figure means nothing until it says what
order ties are in. Two rules have names:

    expected      the exact mean over all orders of the ties; needs only the counts per distance, no sorting
    index-order   ties in the order of the database, as a stable sort leaves them

Two denominators of AP@k have names too: `retrieved` divides by the relevant items among the first k (the habit of the
papers), `relevant` by min(R, k). Without a cut-off they are the same. A query with no relevant item counts as 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.codes import Codes
from dmuh.errors import DtypeError, InputError
from dmuh.metrics import expected, pairs

Ties = Literal["expected", "index-order"]
Denominator = Literal["retrieved", "relevant"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CURVE_POINTS = 200


@dataclass(frozen=True, eq=False)
class Metrics:
    """What `evaluate` measured; every figure is a mean over all queries and follows the named rules.

    >>> codes, labels = dmuh.Codes.from_outputs([[1, 1, 1], [1, 1, -1], [-1, -1, -1]]), dmuh.one_hot([0, 0, 1])
    >>> metrics = dmuh.evaluate(codes, codes, labels, labels, ks=[1, 2])
    >>> metrics.map, metrics.recall_at
    (1.0, {1: 0.666..., 2: 1.0})
    """

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
        """Return plain values for JSON.

        >>> codes, labels = dmuh.Codes.from_outputs([[1, 1, 1], [-1, -1, -1]]), dmuh.one_hot([0, 1])
        >>> dmuh.evaluate(codes, codes, labels, labels).to_dict()["map"]
        1.0
        """
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

    >>> database = dmuh.Codes.from_outputs([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> query = dmuh.Codes.from_outputs([[1, 1, 1]])
    >>> dmuh.evaluate(query, database, dmuh.one_hot([1]), dmuh.one_hot([0, 1, 1])).map  # relevant at ranks 2 and 3
    0.583...
    """
    wanted, given = _checked_labels(query, database, query_labels, database_labels)
    _check_rules(topk, ties, denominator, ks, radius)
    n = len(database)
    cut = n if topk is None else min(topk, n)
    by_retrieved = denominator == "retrieved"
    curve = np.unique(np.geomspace(1, max(n, 1), _CURVE_POINTS).round().astype(np.int64))
    ranks = np.minimum(np.concatenate([np.asarray(ks, np.int64), curve]), n)
    if ties == "expected":
        total, good = pairs.count(query, database, wanted, given)
        average = expected.average_precision(total, good, cut, by_retrieved)
        hit = expected.hits_at(total, good, ranks)
    else:
        total, good, average, hit = pairs.rank(query, database, wanted, given, cut, by_retrieved, ranks)
    near, near_right = (counts[:, : radius + 1].sum(axis=1) for counts in (total, good))
    n_relevant = good.sum(axis=1)

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


def _check_rules(topk: int | None, ties: str, denominator: str, ks: Sequence[int], radius: int) -> None:
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


def _mean(values: NDArray[Any]) -> Any:
    return values.mean(axis=0) if len(values) else np.zeros(values.shape[1:])


def _checked_labels(
    query: Codes, database: Codes, query_labels: ArrayLike, database_labels: ArrayLike
) -> tuple[NDArray[Any], NDArray[Any]]:
    if query.n_bits != database.n_bits:
        raise InputError(f"query codes have {query.n_bits} bits, database codes {database.n_bits}: they must agree")
    checked = []
    for name, codes, labels in (("query", query, query_labels), ("database", database, database_labels)):
        array = np.asarray(labels)
        if array.ndim != 2 or len(array) != len(codes):
            raise InputError(
                f"{name}_labels must be a 0/1 matrix of {len(codes)} rows (one per code) and one column per class, "
                f"got shape {array.shape}"
            )
        if array.dtype.kind not in "biu":
            raise DtypeError(f"{name}_labels must be whole numbers or booleans, got dtype {array.dtype}")
        if array.size and (array.min() < 0 or array.max() > 1):
            raise InputError(f"{name}_labels must hold 0 and 1 only, got values from {array.min()} to {array.max()}")
        checked.append(array)
    if checked[0].shape[1] != checked[1].shape[1]:
        raise InputError(
            f"query_labels have {checked[0].shape[1]} classes, database_labels {checked[1].shape[1]}: they must agree"
        )
    return checked[0], checked[1]
