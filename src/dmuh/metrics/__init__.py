"""How good a ranking is: MAP, precision and recall at k, precision–recall, hash lookup.

A ranking is by Hamming distance, or soft: by how many bits are expected to differ, given how sure each bit is.

With K bits there are only K + 1 Hamming distances, so most of such a ranking is ties, and a figure means nothing until
it says what order ties are in. Soft distances have fewer. Three rules have names:

    expected      the exact mean over all orders of the ties; needs only the counts per distance, no sorting
    index-order   ties in the order of the database, as a stable sort leaves them
    as-searched   ties in the order in which a search shows them: by a shuffle of the ids of each query's own

Three denominators of AP@k have names too: `retrieved` divides by the relevant items among the first k (the habit of
the papers' code), `relevant` by min(R, k), as many as k places can hold, and `all` by R, all relevant items of the
database, as the DMUH paper's text has it. Without a cut-off they are the same. A query with no relevant item counts 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.codes import Codes
from dmuh.errors import DtypeError, InputError
from dmuh.index.shuffle import first_of_ties, shuffled, turns
from dmuh.index.soft import UNITS, Ranking, choose_ranking
from dmuh.metrics import pairs, soft
from dmuh.metrics.figures import Figures, Rules

Ties = Literal["expected", "index-order", "as-searched"]
Denominator = Literal["retrieved", "relevant", "all"]
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
    ranking: Ranking

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
    ranking: Ranking | None = None,
) -> Metrics:
    """Rank the database for each query and measure the ranking; two images are relevant when they share a label.

    Labels are 0/1 matrices (images, classes). `topk` cuts the ranking for MAP (None: all of it); `ks` are the cut-offs
    of precision@k and recall@k, where a k beyond the database means all of it. `radius` is that of the hash lookup, in
    bits that differ, or are expected to.

    `ranking` is hamming or soft; None means soft where it is known how sure the queries' bits are. How sure the bits of
    the database are counts where it has levels.

    >>> database = dmuh.Codes.from_outputs([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> query = dmuh.Codes.from_outputs([[1, 1, 1]])
    >>> dmuh.evaluate(query, database, dmuh.one_hot([1]), dmuh.one_hot([0, 1, 1])).map  # relevant at ranks 2 and 3
    0.583...

    Where the first two bits of a query are a toss of a coin, the third decides:

    >>> unsure = dmuh.Codes.from_outputs([[-1, -1, 1]], uncertainty=[[0.5, 0.5, 0]])
    >>> labels = dmuh.one_hot([0], 2), dmuh.one_hot([0, 1, 1])
    >>> [dmuh.evaluate(unsure, database, *labels, ranking=ranking).map for ranking in ("hamming", "soft")]
    [0.5, 1.0]
    """
    wanted, given = _checked_labels(query, database, query_labels, database_labels)
    _check_rules(topk, ties, denominator, ks, radius)
    ranking = choose_ranking(ranking, query)
    n = len(database)
    curve = np.unique(np.geomspace(1, max(n, 1), _CURVE_POINTS).round().astype(np.int64))
    cut = n if topk is None else min(topk, n)
    rules = Rules(
        cut=cut,
        most={"retrieved": 0, "relevant": cut, "all": n}[denominator],
        ranks=np.minimum(np.concatenate([np.asarray(ks, np.int64), curve]), n),
        near=radius * (2 * UNITS if ranking == "soft" else 1),
    )
    found = _figures(query, database, wanted, given, ties, ranking, rules)
    return Metrics(
        **_means(found, rules.ranks, ks, curve),
        radius=radius,
        topk=topk,
        ties=ties,
        denominator=denominator,
        n_queries=len(query),
        n_database=n,
        n_bits=query.n_bits,
        ranking=ranking,
    )


def _figures(
    query: Codes, database: Codes, wanted: NDArray[Any], given: NDArray[Any], ties: Ties, ranking: Ranking, rules: Rules
) -> Figures:
    """Return the figures of each query, with ties in the order of that name."""
    database = database.stored() if database.levels is not None and ranking == "soft" else database.plain()
    if ties == "expected":
        return (soft.expect if ranking == "soft" else pairs.expect)(query, database, wanted, given, rules)
    begins = np.zeros(len(query), np.int64)
    if ties == "as-searched":
        order = np.argsort(shuffled(database.ids))
        database, given = database[order], given[order]
        begins = first_of_ties(shuffled(database.ids), turns(query, ranking))
    return (soft.rank if ranking == "soft" else pairs.rank)(query, database, wanted, given, rules, begins)


def _means(found: Figures, ranks: Ints, ks: Sequence[int], curve: Ints) -> dict[str, Any]:
    """Return the means over all queries, by their names in Metrics; ranks are those of the ks, then of the curve."""
    precision = _mean(found.hits / np.maximum(ranks, 1))
    recall = _mean(found.hits / np.maximum(found.relevant, 1)[:, None])
    n_ks = len(ks)
    return {
        "map": float(_mean(found.average)),
        "average_precision": found.average,
        "precision_at": {int(k): float(value) for k, value in zip(ks, precision[:n_ks], strict=True)},
        "recall_at": {int(k): float(value) for k, value in zip(ks, recall[:n_ks], strict=True)},
        "precision_recall": (recall[n_ks:], precision[n_ks:], curve),
        "precision_within_radius": float(_mean(found.near_relevant / np.maximum(found.near, 1))),
        "queries_without_match": int((found.near == 0).sum()),
        "queries_without_relevant": int((found.relevant == 0).sum()),
    }


def _check_rules(topk: int | None, ties: str, denominator: str, ks: Sequence[int], radius: int) -> None:
    if ties not in ("expected", "index-order", "as-searched"):
        raise InputError(f"ties must be 'expected', 'index-order' or 'as-searched', got {ties!r}")
    if denominator not in ("retrieved", "relevant", "all"):
        raise InputError(f"denominator must be 'retrieved', 'relevant' or 'all', got {denominator!r}")
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
