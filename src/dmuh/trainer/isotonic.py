"""Isotonic regression: the curve nearest to points, by least squares, that never falls.

As scikit-learn's, which takes a second to import.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.encoder.curve import Curve

Floats = NDArray[np.float64]

_POINTS = 33  # of the curve of turning over


def rising_curve(x: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Curve:
    """Return the curve that never falls through points (n,) with weights, or all of the same weight.

    >>> rising_curve([1, 2, 3, 4], [0.0, 0.6, 0.2, 1.0]).probability.tolist()
    [0.0, 0.4, 0.4, 1.0]
    """
    values = np.asarray(y, np.float64)
    own = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    at, of = np.unique(np.asarray(x, np.float64), return_inverse=True)
    sums, totals = (np.bincount(of, each).astype(np.float64) for each in (own * values, own))
    return Curve(at, _pooled(sums, totals))


def turnover_curve(uncertainty: NDArray[np.floating[Any]], turned: Floats) -> Curve | None:
    """Return the probability of turning over as a curve of the source's number; None if nothing can be learned."""
    known = ~np.isnan(turned)
    values = uncertainty[known].astype(np.float64)
    if not len(values) or np.ptp(values) == 0:
        return None
    fit = rising_curve(values, turned[known])
    at = np.unique(np.quantile(values, np.linspace(0, 1, _POINTS)))
    return Curve(at, _smooth(Curve(fit.at, np.minimum(fit.probability, 0.5)), at))


def _smooth(fit: Curve, at: Floats) -> Floats:
    """Return the steps of a fit as a line through the middles between points: equal neighbours become rare."""
    fine = np.interp(np.linspace(0, len(at) - 1, 16 * (len(at) - 1) + 1), np.arange(len(at)), at)
    steps = fit(fine)
    padded = np.concatenate([np.full(8, steps[0]), steps, np.full(8, steps[-1])])
    means = np.convolve(padded, np.full(17, 1 / 17), mode="valid")
    found: Floats = means[::16]
    return found


def _pooled(sums: Floats, weights: Floats) -> Floats:
    """Return the means of sums (n,) by their weights, where neighbours that fall are pooled until none does."""
    pools: list[tuple[float, float, int]] = []  # sum, weight, number of points
    for total, weight in zip(sums.tolist(), weights.tolist(), strict=True):
        count = 1
        while pools and pools[-1][0] * weight >= total * pools[-1][1]:
            before = pools.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        pools.append((total, weight, count))
    return np.repeat([total / weight for total, weight, _ in pools], [count for _, _, count in pools])
