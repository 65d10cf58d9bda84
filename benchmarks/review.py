"""Wrong labels: how well `dmuh review` finds them, beside plain neighbours, folds of a ridge regression, and cleanlab.

    python benchmarks/review.py IMAGES_FOLDER [LIST_WITH_SEVERAL_LABELS.csv [SEED]]

In IMAGES_FOLDER, one folder per class, 30% of the labels are replaced: by another class at random, and by another class
as often as it occurs (`label_noise` does that). In the list, a label is taken from or given to 10% of the images. SEED,
0 unless given, draws which. All judge by the same ImageNet features in the same process. cleanlab (pip install
cleanlab) gets out-of-fold probabilities of a logistic regression, as its guides say, whose penalty is chosen by
held-out labels, and the best of its scores counts. Features are kept in the cache.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measuring import report, table
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import KFold
from torch.nn.functional import binary_cross_entropy_with_logits as binary_cross_entropy

from dmuh.datasets import Dataset, load_dataset
from dmuh.images import Reading
from dmuh.progress import counting_bar
from dmuh.protocols import noisy_labels
from dmuh.trainer.kept_features import image_features
from dmuh.wrong_labels import find_suspects

SHARE, SHARE_SEVERAL = 0.3, 0.1
FOLDS = 5
NEIGHBOURS = 30
PENALTIES = (100, 300, 1000)


def replaced_at_random(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return labels (n, classes) of which a share is replaced by another class, each as likely as the others."""
    rng = np.random.default_rng(seed)
    n, n_classes = labels.shape
    rows = rng.permutation(n)[: round(SHARE * n)]
    classes = labels.argmax(axis=1)
    classes[rows] = (classes[rows] + rng.integers(1, n_classes, len(rows))) % n_classes
    return np.eye(n_classes, dtype=np.uint8)[classes]


def given_and_taken(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return labels (n, classes) where a share of the images has one label more or one less."""
    rng = np.random.default_rng(seed)
    changed = labels.copy()
    for row in rng.permutation(len(labels))[: round(SHARE_SEVERAL * len(labels))]:
        there, not_there = np.flatnonzero(labels[row]), np.flatnonzero(labels[row] == 0)
        changed[row, rng.choice(there if len(there) and rng.random() < 0.5 else not_there)] ^= 1
    return changed


def margins(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how far the best other class is predicted above the given one (n,)."""
    own = predicted[labels == 1]
    return np.where(labels == 1, -np.inf, predicted).max(axis=1) - own


def by_neighbours(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the share of the nearest images that have another class, with ties broken by the best rival (n,)."""
    votes = np.zeros(labels.shape)
    for first in range(0, len(vectors), 2048):
        rows = np.arange(first, min(first + 2048, len(vectors)))
        near = vectors[rows] @ vectors.T
        near[np.arange(len(rows)), rows] = -1
        votes[rows] = labels[np.argpartition(-near, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]].mean(axis=1)
    return margins(votes, labels)


def out_of_fold(fit: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], vectors: np.ndarray,
                labels: np.ndarray) -> np.ndarray:  # fmt: skip
    """Return what fits to the other folds say of each image (n, classes)."""
    found = np.zeros(labels.shape)
    for others, own in KFold(FOLDS, shuffle=True, random_state=0).split(vectors):
        found[own] = fit(vectors[others], labels[others], vectors[own])
    return found


def ridge(vectors: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return what a ridge regression to labels predicts."""
    return Ridge(1.0).fit(vectors, labels.astype(np.float32)).predict(asked)


def logistic(penalty: float) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Return what fits a logistic regression, to one class per image, or to each label by itself."""

    def fit(vectors: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
        x, y = torch.from_numpy(vectors), torch.from_numpy(labels.astype(np.float32))
        one = bool((labels.sum(axis=1) == 1).all())
        layer = torch.nn.Linear(x.shape[1], y.shape[1])
        torch.nn.init.zeros_(layer.weight)
        optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=60, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimiser.zero_grad()
            outputs = layer(x)
            wrong = -(y * outputs.log_softmax(1)).sum() if one else binary_cross_entropy(outputs, y, reduction="sum")
            value = (wrong + penalty / 2 * layer.weight.square().sum()) / len(x)
            value.backward()
            return value

        optimiser.step(loss)
        with torch.inference_mode():
            outputs = layer(torch.from_numpy(asked))
            return (outputs.softmax(1) if one else outputs.sigmoid()).double().numpy()

    return fit


def probabilities(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return out-of-fold probabilities (n, classes), with the penalty that held-out labels choose."""
    scaled = vectors * np.float32(vectors.shape[1] ** 0.5)
    others, own = next(iter(KFold(FOLDS, shuffle=True, random_state=1).split(vectors)))
    one = bool((labels.sum(axis=1) == 1).all())

    def held_out(penalty: float) -> float:
        predicted = np.clip(logistic(penalty)(scaled[others], labels[others], scaled[own]), 1e-6, 1 - 1e-6)
        return -float(np.where(labels[own] == 1, np.log(predicted), 0 if one else np.log(1 - predicted)).mean())

    best = min(PENALTIES, key=held_out)
    print(f"penalty {best:g}", file=sys.stderr)
    predicted = out_of_fold(logistic(best), scaled, labels)
    return predicted / predicted.sum(axis=1, keepdims=True) if one else predicted


def by_cleanlab(predicted: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return cleanlab's scores (n,) by name, higher where a label is more probably wrong."""
    if (labels.sum(axis=1) == 1).all():
        from cleanlab.rank import get_label_quality_scores

        given = labels.argmax(axis=1)
        return {
            f"{method}{', adjusted' * adjusted}": -get_label_quality_scores(
                given, predicted, method=method, adjust_pred_probs=adjusted
            )
            for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
            for adjusted in (False, True)
            if not (adjusted and method == "confidence_weighted_entropy")
        }
    from cleanlab.multilabel_classification import get_label_quality_scores as several

    lists = [np.flatnonzero(row).tolist() for row in labels]
    methods = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
    return {
        f"{method}, {name}": -several(lists, predicted, method=method, aggregator_kwargs=how)
        for method in methods
        for name, how in (("moving average", {"method": "exponential_moving_average", "alpha": 0.8}),
                          ("worst label", {"method": np.min}))
    }  # fmt: skip


def by_dmuh(vectors: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the order of suspects as scores (n,), the probabilities (n,) and the seconds that it took."""
    began = time.perf_counter()
    found = find_suspects(vectors, labels)
    took = time.perf_counter() - began
    scores, probability = np.zeros(len(labels)), np.zeros(len(labels))
    scores[found.positions] = -np.arange(len(found))
    probability[found.positions] = found.probability
    return scores, probability, took


def calibration(probability: np.ndarray, is_wrong: np.ndarray) -> str:
    """Return in a sentence how often labels are wrong by the probability that was given for it."""
    parts = []
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (probability >= low) & (probability < high)
        if inside.any():
            parts.append(f"{probability[inside].mean():.2f}: {is_wrong[inside].mean():.2f} of {inside.sum():,}")
    return f"probability that was given, and how often labels were wrong: {'; '.join(parts)}"


def measure(what: str, vectors: np.ndarray, right: np.ndarray, labels: np.ndarray) -> tuple[list[dict[str, str]], str]:
    """Return a row per way of finding wrong labels, and a sentence on dmuh's probabilities."""
    is_wrong = (labels != right).any(axis=1)
    rows = []

    def add(name: str, scores: np.ndarray) -> None:
        found = {"area under ROC": roc_auc_score(is_wrong, scores), "AP": average_precision_score(is_wrong, scores)}
        rows.append({"labels": what, "found by": name} | {column: f"{value:.4f}" for column, value in found.items()})
        print(rows[-1], flush=True, file=sys.stderr)

    scores, probability, took = by_dmuh(vectors, labels)
    if (right.sum(axis=1) == 1).all():
        add(f"{NEIGHBOURS} neighbours", by_neighbours(vectors, labels))
        add(f"ridge regression, {FOLDS} folds", margins(out_of_fold(ridge, vectors, labels), labels))
    try:
        found = by_cleanlab(probabilities(vectors, labels), labels)
        best = max(found, key=lambda name: roc_auc_score(is_wrong, found[name]))
        add(f"cleanlab ({best})", found[best])
    except ModuleNotFoundError:
        print("cleanlab is not installed: left out", file=sys.stderr)
    add("dmuh review", scores)
    expected = f"about {probability.sum():,.0f} labels were said to be wrong, {is_wrong.sum():,} are"
    return rows, f"{what}: dmuh took {took:.0f} s; {expected}; {calibration(probability, is_wrong)}"


def features(data: Dataset) -> np.ndarray:
    """Return the features of all images."""
    vectors, positions = image_features(data, Reading(progress=counting_bar))
    assert len(positions) == len(data)
    return vectors


def main(folder: str, several: str | None = None, seed: str = "0") -> None:
    """Measure and print the table."""
    data = load_dataset("folder", Path(folder))
    vectors, n = features(data), len(data)
    cases = {
        "30% replaced, any other class": replaced_at_random(data.labels, int(seed)),
        "30% replaced, as classes occur": noisy_labels(data.labels, np.arange(n), SHARE, int(seed)),
    }
    found = [measure(what, vectors, data.labels, labels) for what, labels in cases.items()]
    if several is not None:
        options = {"path_format": "images/{image_id}.jpg"} if Path(several).parent.joinpath("images").is_dir() else {}
        listed = load_dataset("csv", Path(several), **options)
        what = "several per image, one given or taken at 10%"
        found.append(measure(what, features(listed), listed.labels, given_and_taken(listed.labels, int(seed))))
    report("review", table([row for rows, _ in found for row in rows]), *(said for _, said in found))


if __name__ == "__main__":
    main(*sys.argv[1:])
