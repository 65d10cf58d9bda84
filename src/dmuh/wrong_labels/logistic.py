"""What other images say of each: out-of-fold logits of a logistic regression that reckons with wrong labels.

The images are put into folds, and those of a fold are judged by a fit to the others. Its loss is the negative
log-likelihood of the given labels under `noise`: an image whose label is probably wrong counts for the class that is
probably right, so that mistakes hardly bend the fit. Rounds of the fit alternate with finding how many labels are
wrong, by what is predicted out of fold. The last fit is a plain one, to those labels alone that are probably right by
then: without the others it may follow the images more closely, and tells classes better apart. Beyond `IMAGES`, a
sample of the images is fitted to, so that memory and time are bounded; all others are judged by the mean of the fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmuh.progress import Counting, uncounted
from dmuh.wrong_labels.kernel import KernelFeatures, Matrix
from dmuh.wrong_labels.noise import Labels, Noise

FOLDS = 5
IMAGES = 40_000
ROUNDS = (10, 10, 10)  # steps of each: the first without noise
PENALTIES = (0.15, 0.5, 1.5)  # of weights, for images that lie 1 apart; held-out labels choose
LAST_STEPS = (30,)  # of the fit to labels that are probably right
LAST_PENALTIES = (1.0, 0.2)  # of that fit, times the penalty of the one before
_OF_ONE = 1e-3  # the penalty of the shift
_ONE_FOLD = 5000  # images from which on the penalty is chosen by one fold
_ROWS = 4096  # images whose probabilities are in memory together

N = TypeVar("N", bound=Noise)


@dataclass(frozen=True, eq=False)
class Fit(Generic[N]):
    """What a penalty led to: weights (width, classes) of each fold, out-of-fold logits (n, classes), and the noise."""

    weights: list[Matrix]
    logits: Matrix
    noise: N
    penalty: float
    likelihood: float


class Folds:
    """Images with labels (n, classes) in folds, and fits to all folds but one.

    order   int64 (n,): the images that are fitted to, by fold
    parts   the ranges of this order that are folds
    """

    def __init__(self, features: KernelFeatures, labels: Labels, seed: int = 0) -> None:
        drawn = np.random.default_rng((seed, 0x5E7)).permutation(len(labels))[:IMAGES]
        # images of a label are dealt out to all folds, by the rarest label of those that have several
        rarest = np.where(labels[drawn] == 1, -labels.sum(axis=0, dtype=np.int64), np.iinfo(np.int64).min).argmax(
            axis=1
        )
        dealt = drawn[np.argsort(rarest, kind="stable")]
        folds = min(FOLDS, len(drawn))
        hands = [dealt[number::folds] for number in range(folds)]
        ends = np.cumsum([0, *map(len, hands)]).tolist()
        self.order = np.concatenate(hands)
        self.parts = [slice(first, end) for first, end in pairwise(ends)]
        self._labels = labels[self.order]
        self._features = features.of(self.order)
        self._gram = (self._features.T @ self._features).astype(np.float64)
        self._unit = features.spread

    def best(self, noise: N, count: Counting = uncounted) -> Fit[N]:
        """Return the fit to labels that are probably right, by a fit that reckons with wrong ones.

        The penalty of each is that under which held-out labels are most likely.
        """
        with count("judging labels", self._steps(PENALTIES, ROUNDS) + self._steps(LAST_PENALTIES, LAST_STEPS)) as done:
            first = self._chosen(noise, PENALTIES, ROUNDS, done)
            trusted = first.noise.trusted(first.logits, self._labels)
            lower = [factor * first.penalty for factor in LAST_PENALTIES]
            return self._chosen(noise, lower, LAST_STEPS, done, trusted)

    def _chosen(
        self,
        noise: N,
        penalties: Sequence[float],
        rounds: Sequence[int],
        progress: Callable[[int], None],
        trusted: NDArray[np.bool_] | None = None,
    ) -> Fit[N]:
        """Return the fit with the best of these penalties, each of which is tried in the first rounds."""
        tried = [self.fit(noise, penalty, rounds[:2], self._few, progress, trusted).likelihood for penalty in penalties]
        return self.fit(noise, penalties[int(np.argmax(tried))], rounds, None, progress, trusted)

    @property
    def _few(self) -> Sequence[int]:
        """The folds by which a penalty is chosen."""
        return range(len(self.parts) if len(self.order) < _ONE_FOLD else 1)

    def _steps(self, penalties: Sequence[float], rounds: Sequence[int]) -> int:
        """Return how many steps `_chosen` takes."""
        return len(penalties) * len(self._few) * sum(rounds[:2]) + len(self.parts) * sum(rounds)

    def fit(
        self,
        noise: N,
        penalty: float,
        rounds: Sequence[int] = ROUNDS,
        folds: Sequence[int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
        trusted: NDArray[np.bool_] | None = None,
    ) -> Fit[N]:
        """Return what rounds of these many steps lead to, for some of the folds or all.

        trusted  (n, 1) or (n, classes): which images or labels are fitted to, in the order of the folds; all by default

        Logits of an image do not depend on its own labels, but for the few numbers of the noise. Those of images that
        are in none of the folds are 0.
        """
        folds = range(len(self.parts)) if folds is None else folds
        solver = _Solver(self._gram, penalty * self._unit, noise.curvature)
        n, n_classes = self._labels.shape
        logits = np.zeros((n, n_classes), np.float32)
        weights = [np.zeros((len(self._gram), n_classes), np.float32) for _ in folds]
        held_out = np.concatenate([np.arange(n)[self.parts[fold]] for fold in folds])
        for steps in rounds:
            for number, fold in enumerate(folds):
                weights[number] = solver.descend(self._gradient(fold, noise, trusted), weights[number], steps)
                logits[self.parts[fold]] = self._features[self.parts[fold]] @ weights[number]
                progress(steps)
            noise = noise.fitted(logits[held_out], self._labels[held_out])
        return Fit(weights, logits, noise, penalty, noise.likelihood(logits[held_out], self._labels[held_out]))

    def _gradient(self, fold: int, noise: Noise, trusted: NDArray[np.bool_] | None) -> Callable[[Matrix], Matrix]:
        """Return what takes weights to the gradient of the loss of all images outside a fold that are trusted."""
        own = self.parts[fold]

        def gradient(weights: Matrix) -> Matrix:
            total = np.zeros_like(weights)
            for first, end in ((0, own.start), (own.stop, len(self.order))):
                for start in range(first, end, _ROWS):
                    rows = slice(start, min(start + _ROWS, end))
                    by_logits = noise.gradient(self._features[rows] @ weights, self._labels[rows])
                    total += self._features[rows].T @ (by_logits if trusted is None else by_logits * trusted[rows])
            return total

        return gradient


class _Solver:
    """Accelerated descent (Nesterov, with restarts) along a bound of the curvature (Böhning, 1992)."""

    def __init__(self, gram: NDArray[np.float64], penalty: float, curvature: float) -> None:
        penalties = np.full(len(gram), penalty)
        penalties[-1] = _OF_ONE
        self._inverse = np.linalg.inv(curvature * gram + np.diag(penalties)).astype(np.float32)
        self._penalties = penalties.astype(np.float32)[:, None]

    def descend(self, gradient: Callable[[Matrix], Matrix], weights: Matrix, steps: int) -> Matrix:
        """Return weights (width, classes) after some steps."""
        ahead, momentum = weights, 1.0
        for _ in range(steps):
            slope = gradient(ahead) + self._penalties * ahead
            reached = ahead - self._inverse @ slope
            moved = reached - weights
            if float((slope * moved).sum()) > 0:
                momentum = 1.0
            before, momentum = momentum, (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead, weights = reached + np.float32((before - 1) / momentum) * moved, reached
        return weights
