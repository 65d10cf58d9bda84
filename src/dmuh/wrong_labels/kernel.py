"""Vectors as the features of a smooth kernel, in which a linear fit can tell curved classes apart.

The kernel exp(−d²/s), with s the mean squared distance, is approximated by its values at up to `LANDMARKS` of the
images (Nyström, see Williams and Seeger, 2001): exact up to that many. Vectors without negative numbers, as features
behind a ReLU are, have a few large numbers, which would decide alone how far two images are apart: their square roots
are taken, each vector as long as it was.
"""

import numpy as np
from numpy.typing import NDArray

LANDMARKS = 2000
_ROWS = 4096  # images that are turned into features together
_JITTER = 1e-3  # added to the kernel of an image with itself: what is smaller is lost in rounding

Matrix = NDArray[np.float32]


class KernelFeatures:
    """The features of vectors (n, n_features): their products are the kernel's values, less the mean.

    width   how many features there are, the last of which is 1
    spread  how far the images lie apart in them: the mean squared distance from their mean
    """

    def __init__(self, vectors: Matrix, seed: int = 0, *, landmarks: int = LANDMARKS) -> None:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:landmarks])
        self._vectors = vectors
        points = np.asarray(vectors[chosen], np.float32)
        self._by_roots = bool((points >= 0).all())
        self._points = np.ascontiguousarray(self._taken(points))
        distances = _squared_distances(self._points, self._points)
        self._scale = float(distances.mean()) or 1.0
        kernel = np.exp(-distances.astype(np.float64) / self._scale)
        lower = np.linalg.cholesky(kernel + _JITTER * np.eye(len(kernel)))
        self._whitening = np.linalg.inv(lower).T.astype(np.float32)
        self._middle = (kernel.mean(axis=0) @ self._whitening).astype(np.float32)
        self.spread = max(1.0 - float(kernel.mean()), 1e-3)
        self.width = len(kernel) + 1

    def of(self, rows: NDArray[np.int64]) -> Matrix:
        """Return the features (rows, width) of these images."""
        features = np.ones((len(rows), self.width), np.float32)
        for first in range(0, len(rows), _ROWS):
            part = slice(first, first + _ROWS)
            vectors = self._taken(np.asarray(self._vectors[rows[part]], np.float32))
            distances = _squared_distances(vectors, self._points)
            kernel = np.exp(distances / np.float32(-self._scale))
            features[part, :-1] = kernel @ self._whitening - self._middle
        return features

    def _taken(self, vectors: Matrix) -> Matrix:
        """Return the vectors (n, n_features) as they are compared: as they are, or by their roots."""
        return rooted(vectors) if self._by_roots else vectors


def rooted(vectors: Matrix) -> Matrix:
    """Return the square roots of vectors (n, n_features), what is below 0 as 0, each vector as long as it was.

    >>> rooted(np.array([[9, 16, 0]], np.float32)).round(2)
    array([[11.01, 14.69,  0.  ]], dtype=float32)
    """
    roots: Matrix = np.sqrt(np.maximum(vectors, 0))
    lengths, now = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, roots))
    roots *= lengths / np.maximum(now, np.finfo(np.float32).tiny)
    return roots


def _squared_distances(a: Matrix, b: Matrix) -> Matrix:
    lengths = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)
    distances: Matrix = np.maximum(lengths - 2 * (a @ b.T), 0)
    return distances
