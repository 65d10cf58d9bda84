"""Probabilities as curves, as the card of a model keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A probability as a function of a number: straight lines between points, constant beyond them."""

    at: Floats  # (m,), rising
    probability: Floats  # (m,)

    def __call__(self, values: ArrayLike) -> Floats:
        """Return the probability at each value, in the shape of `values`."""
        return np.interp(np.asarray(values, np.float64), self.at, self.probability)

    def to_dict(self) -> dict[str, list[float]]:
        """Return plain values for JSON; points that are close to each other stay apart."""
        return {"at": self.at.tolist(), "probability": self.probability.round(6).tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Curve":
        """Return what `to_dict` gave; a curve that is none is refused."""
        at, probability = (np.asarray(values[name], np.float64) for name in ("at", "probability"))
        sound = at.ndim == 1 and at.shape == probability.shape and len(at) > 0 and np.isfinite(at).all()
        if not (sound and (np.diff(at) > 0).all() and probability.min() >= 0 and probability.max() <= 1):
            raise ValueError("a curve must rise along `at` and be a probability")
        return cls(at, probability)
