"""The kinds of images that a network tells apart, by images that did not train, and what a search from each finds."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.encoder.curve import Curve
from dmuh.encoder.kinds import Kinds, Prospects
from dmuh.metrics.expected import average_precision
from dmuh.trainer.isotonic import turnover_curve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Of what the rest of a code says of a bit. Held-out training images of coco18 gain by it, hardly more by a larger one;
# it was looked at on queries of one run on CIFAR-10 too, where a larger one tells worse which bits flip under a shift.
_KIND_WEIGHT = 0.25
_POWERS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09)  # of the likelihood of a kind: those that are tried
_LEAST_SLOPE = 1e-3  # of what images find over what is expected of them; the card keeps six digits
_MOST = 200  # kinds, above which there are too few images of each to say how well it is found


def find_kinds(
    outputs: NDArray[np.float32], alone: Floats, turned: Floats, similar: Floats, *, together: bool = False
) -> Kinds | None:
    """Return the kinds of n images and what they say; None if nothing can be learned.

    A kind are the images that agree in what most images like them have: those of a class, or of the same few.

    alone     (n, n_bits): how sure bits are by themselves
    turned    (n, n_bits): which bits turned over, NaN where that is not known
    similar   0/1 (n, n): which images are
    together  whether that is so already by what the whole image shows: then the rest of its code adds nothing
    """
    known = similar.any(axis=1)
    rows, kind, count = np.unique(majorities(outputs, similar)[known], axis=0, return_inverse=True, return_counts=True)
    if not len(rows):
        return None
    weight = 0.0 if together else _KIND_WEIGHT
    unfitted = Kinds(rows, count / count.sum(), weight, Curve(np.zeros(1), np.zeros(1)))
    turnover = turnover_curve(unfitted.scores(outputs, alone), turned)
    if turnover is None:
        return None
    kinds = replace(unfitted, turnover=turnover)
    of_kind = np.zeros((len(rows), len(outputs)))
    of_kind[kind.ravel(), np.flatnonzero(known)] = 1
    return replace(kinds, prospects=_prospects(kinds, outputs, alone, similar, of_kind))


def majorities(outputs: NDArray[np.float32], similar: Floats) -> NDArray[np.int8]:
    """Return the bits that most images like each image have, itself among them: -1 or 1, 0 a draw (n, n_bits)."""
    signs = np.where(outputs >= 0, 1.0, -1.0)
    most: NDArray[np.int8] = np.sign(similar @ signs + signs).astype(np.int8)
    return most


def _prospects(
    kinds: Kinds, outputs: NDArray[np.float32], alone: Floats, similar: Floats, of_kind: Floats
) -> Prospects | None:
    """Return what a search from images of these kinds finds; `of_kind` is 0/1 (m, n). None where that is not known.

    It has the power by which images are put most nearly in the order of what they find, and is left out where they are
    put into a better order by how sure their bits are.
    """
    known = similar.any(axis=1)
    if len(of_kind) > _MOST or known.sum() < 2:
        return None
    precision = _kind_precision(kinds, outputs, of_kind @ similar > 0)
    found = own_precision(outputs, similar)[known]
    tried = []
    for power in _POWERS:
        prospects = Prospects(power, precision, (0.0, 1.0))
        scores = prospects.scores(kinds.probabilities(outputs[known], alone[known], power))
        tried.append((rank_correlation(scores, found), power, scores))
    best, power, scores = max(tried, key=lambda each: each[0])
    if not best > rank_correlation(-kinds.uncertainty(outputs[known], alone[known]).mean(axis=1), found):
        return None
    variance = float(np.var(scores, ddof=1))
    slope = float(np.cov(scores, found)[0, 1]) / variance if variance > 0 else 0.0
    if not slope >= _LEAST_SLOPE:
        return None
    return Prospects(power, precision, (float(found.mean() - slope * scores.mean()), slope))


def _kind_precision(kinds: Kinds, outputs: NDArray[np.float32], like: NDArray[np.bool_]) -> Floats:
    """Return the average precision (m, m) of a search from the code of one kind for images like those of another.

    like  (m, n): whether an image is like one of a kind
    """
    distances = _distances(kinds.signs.astype(np.float64), outputs)  # (m, n)
    return np.stack([mean_precision(distances, np.broadcast_to(right, distances.shape)) for right in like], axis=1)


def own_precision(outputs: NDArray[np.float32], similar: Floats) -> Floats:
    """Return the average precision (n,) with which each of n images finds those that are similar, by Hamming distance.

    No image finds itself.
    """
    distances = _distances(np.where(outputs >= 0, 1.0, -1.0), outputs)
    np.fill_diagonal(distances, 2 * outputs.shape[1] + 1)  # behind all others, and not similar
    return mean_precision(distances, similar > 0)


def _distances(signs: Floats, outputs: NDArray[np.float32]) -> Ints:
    """Return twice the Hamming distance (m, n) of rows of signs (m, n_bits), 0 a draw, to images: whole numbers."""
    agreeing = signs @ np.where(outputs >= 0, 1.0, -1.0).T
    found: Ints = np.rint(outputs.shape[1] - agreeing).astype(np.int64)
    return found


def mean_precision(distances: Ints, right: NDArray[np.bool_]) -> Floats:
    """Return the average precision (m,) by whole distances (m, n), in the mean over all orders of ties."""
    n_rows, n_images = distances.shape
    width = int(distances.max()) + 1
    place = (np.arange(n_rows)[:, None] * width + distances).ravel()
    total, good = (
        np.bincount(place, weights, minlength=n_rows * width).reshape(n_rows, width).astype(np.int64)
        for weights in (None, right.ravel())
    )
    return average_precision(total, good, n_images, n_images)


def rank_correlation(a: NDArray[np.floating[Any]], b: NDArray[np.floating[Any]]) -> float:
    """Return the rank correlation of numbers (n,); equal ones share their ranks. NaN if either are all the same.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0])), 6)
    0.5
    """
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: NDArray[np.floating[Any]]) -> Floats:
    """Return the ranks (n,) of numbers (n,), from 1; equal ones have the mean of theirs."""
    _, of, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[of]
    return ranks
