"""How given labels come from right ones: mistakes are made at rates that are found from the labels themselves.

A fit says how probable each class is for an image. Given that, and the rates, Bayes' rule says how probable the given
label is wrong. The rates are where the given labels are most likely; they are found in turn with which labels are wrong
(expectation and maximisation). Fits that are shrunk are not sure enough: a slope of their log-odds is found beside.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.uint8]
Floats = NDArray[np.floating]

_FIRST = 0.1  # the rate of mistakes that is supposed at first
_SLOPE = 2.0  # and how much surer than it says a fit is
_ALIKE = 0.05  # of all images: as many count for each class's mistakes being like those of all
_TURNS, _SETTLED = 100, 1e-4
_TINY = 1e-30
_PROBABLY = 0.5  # from which on a label is taken to be wrong


class Noise(Protocol):
    """What is known of the mistakes in labels."""

    curvature: ClassVar[float]  # the most that a second derivative of the negative log-likelihood can be

    def gradient(self, logits: Floats, labels: Labels) -> Floats:
        """Return that of the negative log-likelihood of labels (n, classes), by the logits that a fit gives."""

    def fitted(self, logits: Floats, labels: Labels) -> Self:
        """Return the noise under which labels are most likely beside logits that were found without them."""

    def likelihood(self, logits: Floats, labels: Labels) -> float:
        """Return the mean logarithm of the probability of an image's labels."""

    def judged(self, logits: Floats, labels: Labels) -> tuple[Labels, NDArray[np.float64]]:
        """Return the labels (n, classes) that each image should have, and the probability (n,) that its own are wrong.

        The first is what is most probable if they are wrong.
        """

    def trusted(self, logits: Floats, labels: Labels) -> NDArray[np.bool_]:
        """Return which images (n, 1), or which of their labels (n, classes), are probably labelled right."""


@dataclass(frozen=True, eq=False)
class OneLabel:
    """Mistakes where each image has one label: how often each is given where another one is right.

    given  (classes, classes): in each row how often each label is given to images for which the row's is right
    drawn  (classes,): how often a wrong label is of each class, whatever is right
    slope  by which logits are multiplied to be log-odds
    """

    given: NDArray[np.float64]
    drawn: NDArray[np.float64]
    slope: float = 1.0
    curvature: ClassVar[float] = 0.5

    @classmethod
    def none(cls, labels: Labels) -> Self:
        """Return what is supposed before anything is known: no label is wrong."""
        return cls(np.eye(labels.shape[1]), _mixed(labels.mean(axis=0)))

    def gradient(self, logits: Floats, labels: Labels) -> Floats:
        """See Noise."""
        predicted = _softmax(logits)
        return predicted - self._posterior(predicted, labels)[0]

    def fitted(self, logits: Floats, labels: Labels) -> Self:
        """See Noise."""
        # of two causes that fit as well, mistakes are taken: so begin with many of them, and with classes told apart
        now = replace(self, given=_spread(_FIRST, self.drawn), slope=max(self.slope, _SLOPE))
        for _ in range(_TURNS):
            before, now = now, now._next(logits, labels)
            if np.abs(now.given - before.given).max() < _SETTLED and abs(now.slope - before.slope) < _SETTLED:
                break
        return now

    def likelihood(self, logits: Floats, labels: Labels) -> float:
        """See Noise."""
        return float(np.log(self._posterior(_softmax(self.slope * logits), labels)[1]).mean())

    def judged(self, logits: Floats, labels: Labels) -> tuple[Labels, NDArray[np.float64]]:
        """See Noise."""
        right, _ = self._posterior(_softmax(self.slope * logits.astype(np.float64)), labels)
        others = np.where(labels == 1, -1, right)
        best: Labels = np.eye(labels.shape[1], dtype=np.uint8)[others.argmax(axis=1)]
        return best, np.clip(others.sum(axis=1) + 1, 0, 1)

    def trusted(self, logits: Floats, labels: Labels) -> NDArray[np.bool_]:
        """See Noise."""
        return self.judged(logits, labels)[1][:, None] < _PROBABLY

    def _posterior(self, predicted: Floats, labels: Labels) -> tuple[Floats, Floats]:
        """Return how probable each class (n, classes) is beside the labels, and how probable these are (n,)."""
        both = np.maximum(predicted, _TINY) * self.given.T.astype(predicted.dtype)[labels.argmax(axis=1)]
        likelihood = both.sum(axis=1)
        return both / likelihood[:, None], likelihood

    def _next(self, logits: Floats, labels: Labels) -> Self:
        predicted = _softmax(self.slope * logits)
        right, _ = self._posterior(predicted, labels)
        pairs = (right.T @ labels.astype(right.dtype)).astype(np.float64)  # of a right and a given class
        mistaken = pairs - np.diag(np.diag(pairs))
        error = (mistaken.sum() + _FIRST) / (len(labels) + 1)
        # a class is drawn as often as it is given by mistake, of the times that it could be: where another one is right
        could_be = mistaken.sum(axis=1) / (1 - self.drawn)
        drawn = (mistaken.sum(axis=0) + 1) / (could_be.sum() - could_be + len(pairs))
        drawn = _mixed(drawn / drawn.sum())
        given = pairs + _ALIKE * len(labels) * _spread(error, drawn)
        by_slope = ((right - predicted) * logits).sum(dtype=np.float64)
        middle = (predicted * logits).sum(axis=1, keepdims=True)
        curvature = (predicted * np.square(logits - middle)).sum(dtype=np.float64)
        slope = float(np.clip(self.slope + (by_slope + 1 - self.slope) / (curvature + 1), 0.2, 5))
        return replace(self, given=given / given.sum(axis=1, keepdims=True), drawn=drawn, slope=slope)


@dataclass(frozen=True, eq=False)
class SeveralLabels:
    """Mistakes where an image may have any labels: some are missing, some are too much, each by itself.

    missing  the share that is missing of the labels that should be there
    added    the share that is there of those that should not
    slope    (classes,): by which logits are multiplied to be log-odds
    shift    (classes,): which is added to them
    bare     how many images really have no label, of those that would if labels did not depend on each other
    """

    missing: float
    added: float
    slope: NDArray[np.float64]
    shift: NDArray[np.float64]
    bare: float = 1.0
    curvature: ClassVar[float] = 0.25

    @classmethod
    def none(cls, labels: Labels) -> Self:
        """Return what is supposed before anything is known: no label is wrong."""
        return cls(0.0, 0.0, np.ones(labels.shape[1]), np.zeros(labels.shape[1]))

    def gradient(self, logits: Floats, labels: Labels) -> Floats:
        """See Noise."""
        predicted = _sigmoid(logits)
        return predicted - self._posterior(predicted, labels)[0]

    def fitted(self, logits: Floats, labels: Labels) -> Self:
        """See Noise."""
        now = replace(self, missing=max(self.missing, _FIRST), added=max(self.added, _FIRST / 10))
        for _ in range(_TURNS):
            before, now = now, now._next(logits, labels)
            rates = abs(now.missing - before.missing) + abs(now.added - before.added)
            if rates < _SETTLED and np.abs(now.slope - before.slope).max() < 100 * _SETTLED:
                break
        return replace(now, bare=now._bare(logits, labels))

    def likelihood(self, logits: Floats, labels: Labels) -> float:
        """See Noise."""
        return float(np.log(self._posterior(self._predicted(logits), labels)[1]).sum(axis=1).mean())

    def judged(self, logits: Floats, labels: Labels) -> tuple[Labels, NDArray[np.float64]]:
        """See Noise."""
        predicted = self._predicted(logits.astype(np.float64))
        wrong = self._wrong(predicted, labels)
        probability = 1 - np.prod(1 - wrong, axis=1)
        without = ~labels.any(axis=1)
        if without.any():
            really, taken = self._without(predicted[without])
            probability[without] = taken / np.maximum(taken + self.bare * really, _TINY)
        changed = wrong > _PROBABLY
        changed[np.arange(len(labels)), wrong.argmax(axis=1)] = True
        return labels ^ changed.astype(np.uint8), probability

    def trusted(self, logits: Floats, labels: Labels) -> NDArray[np.bool_]:
        """See Noise."""
        return self._wrong(self._predicted(logits), labels) < _PROBABLY

    def _wrong(self, predicted: Floats, labels: Labels) -> Floats:
        """Return how probable it is that each label (n, classes) is wrong, there or not."""
        wrong: Floats = np.abs(self._posterior(predicted, labels)[0] - labels)
        return wrong

    def _predicted(self, logits: Floats) -> Floats:
        return _sigmoid(self.slope.astype(logits.dtype) * logits + self.shift.astype(logits.dtype))

    def _posterior(self, predicted: Floats, labels: Labels) -> tuple[Floats, Floats]:
        """Return how probable each label (n, classes) is beside the given ones, and how probable these are."""
        there = labels == 1
        with_it = np.where(there, 1 - self.missing, self.missing).astype(predicted.dtype) * predicted
        without = np.where(there, self.added, 1 - self.added).astype(predicted.dtype) * (1 - predicted)
        likelihood = np.maximum(with_it + without, _TINY)
        return with_it / likelihood, likelihood

    def _next(self, logits: Floats, labels: Labels) -> Self:
        predicted = self._predicted(logits)
        right, _ = self._posterior(predicted, labels)
        there = right.sum(dtype=np.float64)
        missing = ((right * (1 - labels)).sum(dtype=np.float64) + _FIRST) / (there + 1)
        added = (((1 - right) * labels).sum(dtype=np.float64) + _FIRST / 10) / (right.size - there + 1)
        beyond, weight = right - predicted, predicted * (1 - predicted)
        # a step of Newton's for the line of each class, which is held near slope 1, shift 0
        to_shift = beyond.sum(axis=0, dtype=np.float64) - self.shift
        to_slope = (beyond * logits).sum(axis=0, dtype=np.float64) - (self.slope - 1)
        both = (weight * logits).sum(axis=0, dtype=np.float64)
        of_shift = weight.sum(axis=0, dtype=np.float64) + 1
        of_slope = (weight * np.square(logits)).sum(axis=0, dtype=np.float64) + 1
        area = np.maximum(of_shift * of_slope - np.square(both), _TINY)
        slope = self.slope + np.clip((of_shift * to_slope - both * to_shift) / area, -0.5, 0.5)
        shift = self.shift + np.clip((of_slope * to_shift - both * to_slope) / area, -1, 1)
        return replace(self, missing=min(float(missing), 0.9), added=min(float(added), 0.9),
                       slope=np.clip(slope, 0.2, 5), shift=np.clip(shift, -5, 5))  # fmt: skip

    def _without(self, predicted: Floats) -> tuple[Floats, Floats]:
        """Return how probable no label (n,) is, were labels independent: with none right, and with some missing."""
        really = np.prod((1 - self.added) * (1 - predicted), axis=1, dtype=np.float64)
        every = np.prod((1 - self.added) * (1 - predicted) + self.missing * predicted, axis=1, dtype=np.float64)
        return really, every - really

    def _bare(self, logits: Floats, labels: Labels) -> float:
        really, taken = self._without(self._predicted(logits))
        found = np.count_nonzero(~labels.any(axis=1))
        return float(np.clip((found - taken.sum()) / max(really.sum(), _TINY), 0, 1))


def _spread(error: float, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how often labels are given (classes, classes) if a share is wrong, drawn by these shares (classes,)."""
    wrong = error * drawn / (1 - drawn)[:, None]
    np.fill_diagonal(wrong, 1 - error)
    return wrong


def _mixed(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares (classes,) none of which is 0 or 1."""
    return 0.99 * shares + 0.01 / len(shares)


def _softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    raised /= raised.sum(axis=1, keepdims=True)
    return raised


def _sigmoid(logits: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
