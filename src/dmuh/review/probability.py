"""How sure it is that a label is wrong: by labels that were made wrong on purpose.

A few labels are replaced, and it is seen which scores the replaced ones get. The log-odds that a label is wrong are
taken to be linear in its score. That line is fitted to tell wrong labels from right ones: wrong are the replaced ones
and, by half, those of the given ones that the line itself calls wrong, right is what remains of the given ones. Both
are found in turn (expectation and maximisation), from the guess that a label with a score above 0 is wrong.
"""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

_MOST = 0.99  # what is surer than this cannot be told from a thousand replaced labels
_TURNS, _STEPS = 50, 25
_PENALTY = 1e-2  # of the slope, for scores that a line separates


def probabilities(scores: Scores, replaced: Scores) -> Scores:
    """Return for each score (n,) the probability that its label is wrong; it rises with the score.

    replaced  the scores (m,) of labels that were replaced, which are wrong
    """
    found: Scores = (scores > 0).astype(np.float64)
    if not len(scores) or not len(replaced):
        return np.zeros(len(scores))
    every = np.concatenate([scores, scores, replaced])
    is_wrong = np.repeat([0.0, 1.0, 1.0], [len(scores), len(scores), len(replaced)])
    for _ in range(_TURNS):
        of_replaced = np.full(len(replaced), 0.5 * found.sum() / len(replaced))
        slope, shift = logistic(every, is_wrong, np.concatenate([1 - found, 0.5 * found, of_replaced]))
        before, found = found, _probability(scores, max(slope, 0.0), shift)
        if np.abs(found - before).max() < 1e-3:
            break
    return np.minimum(found, _MOST)


def logistic(x: Scores, y: Scores, weights: Scores | None = None) -> tuple[float, float]:
    """Return slope and shift of the logistic regression of y (n,), 0 or 1, on x (n,), with weights (n,) if given."""
    line = np.zeros(2)
    penalty = _PENALTY * np.diag([1.0, 1e-3])
    design, weights = np.stack([x, np.ones_like(x)], axis=1), np.ones_like(x) if weights is None else weights
    for _ in range(_STEPS):
        p = _probability(x, *line.tolist())
        gradient = design.T @ (weights * (p - y)) + penalty @ line
        step = np.linalg.solve(design.T @ (design * (weights * p * (1 - p))[:, None]) + penalty, gradient)
        line -= np.clip(step, -20, 20)
        if np.abs(step).max() < 1e-5:
            break
    return float(line[0]), float(line[1])


def _probability(x: Scores, slope: float, shift: float) -> Scores:
    return 1 / (1 + np.exp(-np.clip(slope * x + shift, -30, 30)))
