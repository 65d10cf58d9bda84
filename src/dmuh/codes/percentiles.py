"""How an image's uncertainty compares with that of others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def uncertainty_percentiles(uncertainty: ArrayLike | None) -> list[float] | None:
    """Return what 0, 1, …, 100% of images stay at or below in uncertainty; None where it is not known."""
    if uncertainty is None or not np.size(uncertainty):
        return None
    return [round(float(value), 6) for value in np.percentile(np.asarray(uncertainty, float), range(101))]


def less_certain_than(uncertainty: float, percentiles: Sequence[float]) -> int:
    """Return the percentage of images that have a smaller uncertainty, by their percentiles: 0 to 99."""
    return min(99, max(0, int(np.searchsorted(percentiles, uncertainty)) - 1))
