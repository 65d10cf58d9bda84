"""find_suspects: which labels are probably wrong, which ones would be right, and how sure that is.

Every image is judged by all others (`ridge`). With one label per image its score is the best prediction of another
class less that of its own; frequent classes, which are predicted too often, get a handicap. With several, each label is
judged by itself: one that is there and should not be, and one that should be there and is not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import InputError
from dmuh.progress import Counting, uncounted
from dmuh.review.probability import Scores, logistic, probabilities
from dmuh.review.ridge import LeaveOneOut, Matrix

Labels = NDArray[np.uint8]

_REPLACED = 0.02  # of the images: labels that are made wrong on purpose, to learn what scores wrong labels get
_ENOUGH, _MOST_ROUNDS = 1000, 8  # replaced labels that are asked for, and how often the images are gone through for it
_HANDICAP = 0.05  # of a class that is e times as frequent as another


@dataclass(frozen=True, eq=False)
class Suspects:
    """Images with labels, those first whose labels are probably wrong.

    positions    int64 (n,): which images of those that were given
    suggested    uint8 (n, classes): the labels that each should have
    probability  float64 (n,): that the labels it has are wrong
    """

    positions: NDArray[np.int64]
    suggested: Labels
    probability: Scores

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
    fit = LeaveOneOut(vectors if len(positions) == len(vectors) else vectors[positions], seed)
    rng = np.random.default_rng((seed, 0x5E7))
    judge = _judge_several if several else _judge_one
    suggested, probability, scores = judge(fit, known, rng, count)
    order = np.lexsort((positions, -scores, -probability))
    return Suspects(positions[order], suggested[order], probability[order])


def _rounds(n: int) -> int:
    return int(np.clip(np.ceil(_ENOUGH / max(1, round(_REPLACED * n))), 1, _MOST_ROUNDS))


def _chosen(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.permutation(n)[: max(1, round(_REPLACED * n))]


# -- one label per image ---------------------------------------------------------------------------------------------


def _judge_one(
    fit: LeaveOneOut, labels: Labels, rng: np.random.Generator, count: Counting
) -> tuple[Labels, Scores, Scores]:
    """Return suggested labels (n, classes), the probability (n,) and the score (n,) of images with one label each."""
    n, n_classes = labels.shape
    given = labels.argmax(axis=1)
    frequency = labels.sum(axis=0) / n
    chosen = [_chosen(n, rng) for _ in range(_rounds(n))]
    others = [_with_others(given, rows, frequency, rng) for rows in chosen]
    targets = [labels, *(np.eye(n_classes, dtype=np.uint8)[other] for other in others)]
    handicap = (_HANDICAP * np.log(np.maximum(frequency, 1 / n))).astype(np.float32)
    best, scores = np.empty(n, np.int64), np.empty((len(targets), n))
    for rows, predicted in fit.predictions(targets, count):
        for number, (prediction, own) in enumerate(zip(predicted, [given, *others], strict=True)):
            rivals = np.where(frequency > 0, prediction - handicap, -np.inf)
            every = np.arange(len(rivals))
            mine = rivals[every, own[rows]]
            rivals[every, own[rows]] = -np.inf
            scores[number, rows] = rivals.max(axis=1) - mine
            if number == 0:
                best[rows] = rivals.argmax(axis=1)
    # an image whose label was suspect before may have got its right one
    fair = [rows[scores[0, rows] < 0] for rows in chosen]
    replaced = np.concatenate([scores[number, rows] for number, rows in enumerate(fair, start=1)])
    suggested: Labels = np.eye(n_classes, dtype=np.uint8)[best]
    return suggested, probabilities(scores[0], replaced), scores[0]


def _with_others(
    given: NDArray[np.int64], rows: NDArray[np.int64], frequency: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the class of each image, that of the images in `rows` replaced by another one, drawn by its frequency."""
    others = given.copy()
    for row in rows.tolist():
        chances = frequency.copy()
        chances[given[row]] = 0
        others[row] = rng.choice(len(chances), p=chances / chances.sum())
    return others


# -- several labels per image ----------------------------------------------------------------------------------------


def _judge_several(
    fit: LeaveOneOut, labels: Labels, rng: np.random.Generator, count: Counting
) -> tuple[Labels, Scores, Scores]:
    """Return the same of images with any number of labels: each label is judged by itself."""
    n, n_classes = labels.shape
    flips = [_flips(labels, rng) for _ in range(_rounds(n // 2))]
    targets = [labels]
    for rows, columns in flips:
        flipped = labels.copy()
        flipped[rows, columns] ^= 1
        targets.append(flipped)
    scores, of_flipped = np.empty((n, n_classes)), [np.empty(len(rows)) for rows, _ in flips]
    for part, predicted in fit.predictions(targets, count):
        scores[part] = predicted[0]
        for (rows, columns), prediction, found in zip(flips, predicted[1:], of_flipped, strict=True):
            inside = (rows >= part.start) & (rows < part.stop)
            found[inside] = prediction[rows[inside] - part.start, columns[inside]]
    slope, shift = _logits(scores, labels)
    scores = slope * scores + shift
    replaced = [slope[columns] * found + shift[columns] for (_, columns), found in zip(flips, of_flipped, strict=True)]
    kind, kind_of_flipped = _kinds(labels), [_kinds(target) for target in targets[1:]]
    probability = np.zeros((n, n_classes))
    for number in range(3):
        same = kind == number
        sign = -1 if number == 0 else 1
        known = [
            sign * found[kinds[rows, columns] == number]
            for (rows, columns), found, kinds in zip(flips, replaced, kind_of_flipped, strict=True)
        ]
        probability[same] = probabilities(sign * scores[same], np.concatenate(known))
    wrong = probability > 0.5
    wrong[np.arange(n), probability.argmax(axis=1)] = True
    suggested: Labels = labels ^ wrong.astype(np.uint8)
    return suggested, probability.max(axis=1), 1 - np.prod(1 - probability, axis=1)


def _kinds(labels: Labels) -> NDArray[np.int64]:
    """Return for each label (n, classes) 0 if it is there, 1 if it is not, 2 if the image has none at all."""
    return np.where(labels == 1, 0, np.where(labels.any(axis=1, keepdims=True), 1, 2))


def _flips(labels: Labels, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return images and the class of each that is to be given or taken, as often the one as the other."""
    rows = _chosen(len(labels), rng)
    columns = []
    for number, row in enumerate(rows.tolist()):
        there, not_there = np.flatnonzero(labels[row]), np.flatnonzero(labels[row] == 0)
        take = len(there) and (number % 2 or not len(not_there))
        columns.append(rng.choice(there if take else not_there))
    return rows, np.array(columns, np.int64)


def _logits(predictions: Scores, labels: Labels) -> tuple[Scores, Scores]:
    """Return by class the slope and the shift that make log-odds of predictions (n, classes), fitted to the labels."""
    slope, shift = np.ones(labels.shape[1]), np.zeros(labels.shape[1])
    for column in range(labels.shape[1]):
        slope[column], shift[column] = logistic(predictions[:, column], labels[:, column].astype(float))
    return slope, shift
