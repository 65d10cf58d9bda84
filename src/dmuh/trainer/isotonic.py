"""Isotonic regression: the curve nearest to points, by least squares, that never falls.

As scikit-learn's, which takes a second to import.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.encoder.calibration import Curve

Floats = NDArray[np.float64]


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
