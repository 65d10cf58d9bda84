"""KnownTexts: texts that a model learned from, by which it is told whether another one is about anything it knows.

A network gives every text a code, one about things that no training text mentions too, and such a code may be near to
those of images. So a text that is like none of the training texts is told apart before: its five nearest among them are
farther, in the mean, than those of 19 of 20 texts that did not train.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KNOWN = "text_known.features"  # where a model file has them
MOST = 2000  # training texts that are kept
_NEAREST = 5
_STRANGE = 0.05  # of texts that did not train, which are taken for strange ones
_DIGITS = 4  # of a likeness: what stands beside a text may change the last ones


@dataclass(frozen=True, eq=False)
class KnownTexts:
    """Unit vectors float32 (m, n_features) of training texts, and how like them, 0 to 1, a text must be."""

    vectors: NDArray[np.float32]
    least: float

    @classmethod
    def fit(cls, trained: NDArray[np.float32], others: NDArray[np.float32]) -> "KnownTexts":
        """Return some of the texts trained with, by their features (n, n_features), and what others are like them."""
        chosen = np.unique(np.linspace(0, len(trained) - 1, MOST).astype(np.int64))
        known = cls(_of_length_one(trained[chosen]), 0.0)
        return cls(known.vectors, float(np.quantile(known.likeness(others), _STRANGE)))

    def likeness(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how like the known texts others are (n,): the mean cosine with the nearest of them."""
        cosines = _of_length_one(features) @ self.vectors.T
        nearest = min(_NEAREST, cosines.shape[1])
        likeness: NDArray[np.float32] = np.partition(cosines, -nearest, axis=1)[:, -nearest:].mean(axis=1)
        return likeness.round(_DIGITS)

    def strange(self, features: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which texts (n,) are like none of the known ones."""
        found: NDArray[np.bool_] = self.likeness(features) < self.least
        return found


def _of_length_one(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float32] = rows / np.maximum(lengths, 1e-12)
    return units
