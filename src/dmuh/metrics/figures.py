"""What is measured of each query's ranking, and by which rules."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmuh.metrics import expected

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rules:
    """How rankings are measured.

    cut    how many places count for average precision, at most all
    most   this is divided by the relevant items, by so many at most; 0 divides by those among the places that count
    ranks  int64 (r,) at how many places hits are counted, at most all
    near   the largest distance within the radius
    """

    cut: int
    most: int
    ranks: Ints
    near: int


@dataclass(frozen=True, eq=False)
class Figures:
    """Of q queries: average precision, hits (q, r) at the ranks, how many items are relevant, near, and both."""

    average: Floats
    hits: Floats
    relevant: Ints
    near: Ints
    near_relevant: Ints

    @classmethod
    def zeros(cls, n_queries: int, rules: Rules) -> "Figures":
        """Return zeros for so many queries, to be set."""
        none = np.zeros(n_queries, np.int64)
        hits = np.zeros((n_queries, len(rules.ranks)))
        return cls(np.zeros(n_queries), hits, none.copy(), none.copy(), none.copy())

    @classmethod
    def of_counts(cls, total: Ints, good: Ints, rules: Rules, harmonic: Floats | None = None) -> "Figures":
        """Return the means over all orders of ties, from counts (q, distances) of all items and of relevant ones.

        `harmonic` are the harmonic numbers, for who calls this often.
        """
        average = expected.average_precision(total, good, rules.cut, rules.most, harmonic)
        return cls.of_ranking(total, good, rules, average, expected.hits_at(total, good, rules.ranks))

    @classmethod
    def of_ranking(cls, total: Ints, good: Ints, rules: Rules, average: Floats, hits: Floats) -> "Figures":
        """Return what a ranking gave, and what its counts give."""
        near, near_relevant = (counts[:, : rules.near + 1].sum(axis=1) for counts in (total, good))
        return cls(average, hits, good.sum(axis=1), near, near_relevant)

    def put(self, part: slice, other: "Figures") -> None:
        """Set those of a part of the queries."""
        for name, values in vars(self).items():
            values[part] = getattr(other, name)

    def taken(self, of: Ints) -> "Figures":
        """Return those of the queries at positions `of`, each as often as it occurs there."""
        return Figures(*(values[of] for values in vars(self).values()))
