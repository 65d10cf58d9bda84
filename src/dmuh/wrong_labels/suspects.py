"""find_suspects: which labels are probably wrong, which ones would be right, and how sure that is.

Every image is judged by a fit to others (`logistic`). With one label per image, the probability is that of all other
classes. With several, each label is judged by itself: one that is there and should not be, and one that should be there
and is not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import InputError
from dmuh.progress import Counting, uncounted
from dmuh.wrong_labels.kernel import KernelFeatures, Matrix
from dmuh.wrong_labels.logistic import Folds
from dmuh.wrong_labels.noise import Labels, OneLabel, SeveralLabels

_MOST = 0.99  # nothing is surer than this
_ROWS = 4096  # images that are judged together


@dataclass(frozen=True, eq=False)
class Suspects:
    """Images with labels, those first whose labels are probably wrong.

    positions    int64 (n,): which images of those that were given
    suggested    uint8 (n, classes): the labels that each should have
    probability  float64 (n,): that the labels it has are wrong
    """

    positions: NDArray[np.int64]
    suggested: Labels
    probability: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.positions)

    def at_least(self, probability: float) -> "Suspects":
        """Return those whose labels are wrong with at least this probability."""
        n = int((self.probability >= probability).sum())
        return Suspects(self.positions[:n], self.suggested[:n], self.probability[:n])


def find_suspects(
    vectors: Matrix, labels: Labels, *, seed: int = 0, several: bool | None = None, count: Counting = uncounted
) -> Suspects:
    """Return the images whose labels are probably wrong.

    vectors  float32 (n, n_features), such as ImageNet features of length 1
    labels   uint8 (n, classes)
    several  whether an image may have more or fewer labels than one; by default that is seen from the labels. If not,
             images without a label take no part.
    count    shows how far it is
    """
    if vectors.ndim != 2 or labels.ndim != 2 or len(vectors) != len(labels):
        raise InputError(f"vectors and labels must be matrices of n rows, got {vectors.shape} and {labels.shape}")
    n_labels = labels.sum(axis=1)
    several = bool((n_labels > 1).any()) if several is None else several
    positions = np.arange(len(labels)) if several else np.flatnonzero(n_labels)
    known = labels[positions]
    if np.count_nonzero(known.any(axis=0)) < 2 and not several:
        raise InputError("labels can be told wrong only where there are two classes or more")
    if len(positions) < 3:
        raise InputError(f"labels can be judged from three labelled images on, got {len(positions)}")
    used = np.ones(labels.shape[1], bool) if several else known.any(axis=0)
    suggested = np.zeros_like(known)
    suggested[:, used], scores = _judged(
        vectors if len(positions) == len(vectors) else vectors[positions], known[:, used], several, seed, count
    )
    order = np.lexsort((positions, -scores))
    return Suspects(positions[order], suggested[order], np.minimum(scores[order], _MOST))


def _judged(
    vectors: Matrix, labels: Labels, several: bool, seed: int, count: Counting
) -> tuple[Labels, NDArray[np.float64]]:
    """Return the labels (n, classes) that images should have, and the probability (n,) that theirs are wrong."""
    features = KernelFeatures(vectors, seed)
    folds = Folds(features, labels, seed)
    fit = folds.best(SeveralLabels.none(labels) if several else OneLabel.none(labels), count)
    suggested, probability = np.empty_like(labels), np.empty(len(labels))
    suggested[folds.order], probability[folds.order] = fit.noise.judged(fit.logits, labels[folds.order])
    beyond = np.setdiff1d(np.arange(len(labels)), folds.order, assume_unique=True)
    weights = np.mean(fit.weights, axis=0)
    for first in range(0, len(beyond), _ROWS):
        rows = beyond[first : first + _ROWS]
        suggested[rows], probability[rows] = fit.noise.judged(features.of(rows) @ weights, labels[rows])
    if isinstance(fit.noise, OneLabel):
        # of an image whose label no other has, nothing is known but how often labels are wrong
        alone = labels[:, labels.sum(axis=0) == 1].any(axis=1)
        probability[alone] = probability.mean()
    return suggested, probability
