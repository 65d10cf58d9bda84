"""What all other images say of each: predictions that leave the image itself out.

Kernel ridge regression (Saunders et al., 1998) from vectors to labels. Its leave-one-out predictions have a closed
form, so every image is judged by a fit to all others, not to some folds of them. The kernel exp(−d²/s), with s the mean
squared distance, is approximated by its values at up to `LANDMARKS` of the images (Nyström): exact up to that many.
Memory is that of a few matrices (LANDMARKS, LANDMARKS), however many images there are.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dmuh.progress import Counting, uncounted

LANDMARKS = 2000
_ROWS = 4096  # images that are in memory together
_JITTER = 1e-3  # added to the kernel of an image with itself: what is smaller is lost in rounding

Matrix = NDArray[np.float32]


class LeaveOneOut:
    """The fit to vectors (n, n_features), for any targets."""

    def __init__(self, vectors: Matrix, seed: int = 0, *, landmarks: int = LANDMARKS) -> None:
        n = len(vectors)
        chosen = np.sort(np.random.default_rng(seed).permutation(n)[:landmarks])
        self._vectors = vectors
        self._points = np.ascontiguousarray(vectors[chosen], np.float32)
        distances = _squared_distances(self._points, self._points)
        self._scale = float(distances.mean()) or 1.0
        kernel = np.exp(-distances.astype(np.float64) / self._scale)
        self._whitening = _inverse_root(kernel + _JITTER * np.eye(len(kernel))).astype(np.float32)
        self._penalty = max(1.0 - float(kernel.mean()), 1e-3)  # as much noise as there is signal

    def predictions(
        self, targets: Sequence[NDArray[np.uint8]], count: Counting = uncounted
    ) -> Iterator[tuple[slice, list[Matrix]]]:
        """Yield slices of the images, and for each of the targets (n, k) what is predicted of these images (rows, k).

        A prediction does not depend on the target of the image itself.
        """
        n, stacked = len(self._vectors), [target.shape[1] for target in targets]
        columns = np.cumsum(stacked)[:-1].tolist()
        with count("judging labels", 2 * n) as progress:
            width = self._whitening.shape[1]
            gram, total = np.zeros((width, width)), np.zeros(width)
            shared, means = np.zeros((width, sum(stacked))), np.zeros(sum(stacked))
            for rows, features, target in self._chunks(targets):
                gram += features.T @ features
                total += features.sum(axis=0, dtype=np.float64)
                shared += features.T @ target
                means += target.sum(axis=0, dtype=np.float64) / n
                progress(rows.stop - rows.start)
            gram += self._penalty * np.eye(width) - np.outer(total, total) / n
            shared -= np.outer(total, means)
            inverse = _inverse_root(gram)
            weights = (inverse @ (inverse.T @ shared)).astype(np.float32)
            inverse, middle = inverse.astype(np.float32), (total / n).astype(np.float32)
            for rows, features, target in self._chunks(targets):
                centred = features - middle
                influence = np.square(centred @ inverse).sum(axis=1) + 1 / n  # of an image's target on its own fit
                fitted = centred @ weights + means.astype(np.float32)
                # without other images of its kind an image decides its own fit: then nothing is known of it
                others = target - (target - fitted) / np.maximum(1 - influence, 1e-3)[:, None]
                yield rows, np.split(others, columns, axis=1)
                progress(rows.stop - rows.start)

    def _chunks(self, targets: Sequence[NDArray[np.uint8]]) -> Iterator[tuple[slice, Matrix, Matrix]]:
        """Yield slices of the images with their features in the kernel's space and their targets."""
        for first in range(0, len(self._vectors), _ROWS):
            rows = slice(first, min(first + _ROWS, len(self._vectors)))
            distances = _squared_distances(np.asarray(self._vectors[rows], np.float32), self._points)
            kernel = np.exp(distances / np.float32(-self._scale))
            yield rows, kernel @ self._whitening, np.hstack([target[rows] for target in targets]).astype(np.float32)


def _inverse_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R with R·Rᵀ the inverse of a symmetric positive definite matrix."""
    inverse: NDArray[np.float64] = np.linalg.inv(np.linalg.cholesky(matrix)).T
    return inverse


def _squared_distances(a: Matrix, b: Matrix) -> Matrix:
    lengths = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)
    distances: Matrix = np.maximum(lengths - 2 * (a @ b.T), 0)
    return distances
