"""What images that did not train say about a network's bits: how often they turn over, and what a distance means.

Two images are similar where they share a label; images without labels, where one is among the nearest of the other by
the features below the hash layer. A bit turns over where an image does not get the bit that most similar images have.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.encoder.calibration import SURE, Calibration, Grades
from dmuh.encoder.curve import Curve
from dmuh.encoder.recoding import Recoding
from dmuh.features import unit_vectors
from dmuh.index.soft import pair_distances, shown
from dmuh.methods import METHODS
from dmuh.network import HashNetwork, UncertaintySource
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.grades import best_grades, unsure_together
from dmuh.trainer.inputs import Inputs
from dmuh.trainer.isotonic import rising_curve, turnover_curve
from dmuh.trainer.kinds import find_kinds, mean_precision
from dmuh.trainer.measuring import Outputs, compute_outputs, spread
from dmuh.trainer.recoding import find_recoding

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_MOST = 1000  # images at most that the network is calibrated on
_FEWEST = 16  # held-out images below which training images are taken instead
_NEIGHBOURS = 10  # of an image without labels
_NEVER = 0.005  # no distance makes it certain that two images match, or that they do not
_RANKS = np.concatenate([[0, 0.001, 0.002, 0.005, 0.01], np.linspace(0.02, 1, 50)])  # of pairs, the nearest first


@dataclass(frozen=True, eq=False)
class Calibrated:
    """How sure the bits of a network are, and the outputs of the images that this comes from."""

    calibration: Calibration
    by: Outputs


def calibrate_bits(
    context: TrainingContext, network: HashNetwork, source: UncertaintySource, inputs: Inputs
) -> Calibrated:
    """Return how sure the bits of a network are, by the validation images; without these, by training images."""
    positions, held_out = calibration_positions(context)
    found = compute_outputs(network, source, inputs, positions)
    assert found.uncertainty is not None, "there is an uncertainty where it has a source"
    labels = context.data.labels[found.positions] if context.data.classes else None
    similar = (
        share_a_label(labels) if labels is not None else near_by_angle(_features(network, inputs, found.positions))
    )
    if not held_out:
        log.info(
            "how sure bits are is measured on training images, which look surer than others: %d images are held out, "
            "and it takes %d",
            len(context.split.validation),
            _FEWEST,
        )
    recoding = _recoding(context, found.outputs, similar) if held_out and labels is not None else None
    outputs = found.outputs if recoding is None else recoding.outputs(found.outputs)
    fitted = calibrated(outputs, found.uncertainty, similar, has_labels=labels is not None, together=source.together)
    part = "validation" if held_out else "training"
    return Calibrated(replace(fitted, part=part, recoding=recoding), found)


def _recoding(context: TrainingContext, outputs: NDArray[np.float32], similar: Floats) -> Recoding | None:
    """Return how codes are better placed than by signs, if the settings ask; texts, which have signs, are not asked."""
    if context.settings.recode == "never" or METHODS[context.config.method].takes_texts:
        return None
    recoding, before, after = find_recoding(outputs, similar)
    left = "" if recoding is not None else ": they stay the signs"
    log.info("codes by kind: MAP of validation images %.3f, by signs %.3f%s", after, before, left)
    return recoding


def calibration_positions(context: TrainingContext) -> tuple[NDArray[np.int64], bool]:
    """Return which images bits are calibrated on, and whether these are held out of the training."""
    split, held_out = context.split, len(context.split.validation) >= _FEWEST
    return spread(split.validation if held_out else split.train, _MOST), held_out


def calibrated(
    outputs: NDArray[np.float32],
    uncertainty: NDArray[np.float32],
    similar: Floats,
    *,
    has_labels: bool,
    together: bool = False,
) -> Calibration:
    """Return the calibration by n images: their outputs and what the source of uncertainty says of them (n, n_bits).

    similar     0/1 (n, n): which images are
    has_labels  whether these are the ones that share a label; else what a distance means is not known
    together    whether the bits of an image are sure or unsure together by what the source is; else that is measured
    """
    together = together or unsure_together(uncertainty)
    results = {"outputs": outputs, "uncertainty": uncertainty}
    turned = _turned_over(outputs, similar)
    turnover = turnover_curve(uncertainty, turned)
    kinds = None
    if turnover is not None and has_labels:
        kinds = find_kinds(outputs, turnover(uncertainty), turned, similar, together=together)
    by_curve = Calibration(turnover, {}, {}, len(outputs), "", kinds)
    unsure = by_curve.uncertainty(results)
    graded = replace(by_curve, grades={sure: best_grades(unsure, sure, together=together) for sure in SURE if sure})
    graded = replace(graded, grades=_helpful(graded, results, similar))
    return with_match(graded, outputs, uncertainty, similar) if has_labels else graded


def with_match(
    calibration: Calibration, outputs: NDArray[np.float32], uncertainty: NDArray[np.float32], similar: Floats
) -> Calibration:
    """Return a calibration that knows what distances mean, by n images of which `similar` (n, n) share a label."""
    results = {"outputs": outputs, "uncertainty": uncertainty}
    by_levels = {sure: calibration.codes(results, sure=sure) for sure in SURE}
    return replace(calibration, match=match_curves(by_levels, by_levels, similar))


def match_curves(query: Mapping[int, Codes], database: Mapping[int, Codes], similar: Floats) -> dict[str, Curve]:
    """Return what the distances of n queries to n others mean, by n codes of each with as many bits of sureness.

    similar  0/1 (n, n): which of them share a label. No query is compared with the one of its own number.
    """
    hamming = _match(query[0].plain(), database[0].plain(), similar)
    return {"hamming": hamming, **{f"soft-{sure}": _match(query[sure], database[sure], similar) for sure in query}}


def share_a_label(labels: NDArray[np.uint8]) -> Floats:
    """Return which images (n, classes) share a label: 0/1 (n, n), no image with itself."""
    floats = labels.astype(np.float64)
    similar = (floats @ floats.T > 0).astype(np.float64)
    np.fill_diagonal(similar, 0)
    return similar


def near_by_angle(features: NDArray[np.float32]) -> Floats:
    """Return for each image (n, n_features) its nearest by angle: 0/1 (n, n), no image with itself."""
    rows = unit_vectors(features)
    angles = rows @ rows.T
    np.fill_diagonal(angles, -np.inf)
    n = min(_NEIGHBOURS, max(len(rows) - 1, 0))
    similar = np.zeros(angles.shape)
    np.put_along_axis(similar, np.argsort(-angles, axis=1, kind="stable")[:, :n], 1.0, axis=1)
    return similar


@torch.inference_mode()
def _features(network: HashNetwork, inputs: Inputs, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return what stands below the hash layer (n, n_features) for the images at `positions`."""
    batches = inputs.batches([positions])
    return np.concatenate([network.head_inputs(batch.activations).float().cpu().numpy() for batch in batches])


def _turned_over(outputs: NDArray[np.float32], similar: Floats) -> Floats:
    """Return which bits (n, n_bits) are not those that most of the similar images have: 0, 1, or ½ where it is a draw.

    Images without similar ones have NaN.
    """
    signs = np.where(outputs >= 0, 1.0, -1.0)
    turned: Floats = (1 - signs * np.sign(similar @ signs)) / 2
    turned[similar.sum(axis=1) == 0] = np.nan
    return turned


def _helpful(calibration: Calibration, results: dict[str, NDArray[np.float32]], similar: Floats) -> dict[int, Grades]:
    """Return the levels, worth nothing more than plain bits where the images surely find each other worse by them.

    So it is where a few images have outputs far larger than all others: they are the surest in every bit that they
    share with a query, and stand first wherever they agree with it (methods that do not bound their outputs, as DSH).
    A small loss among a few hundred images is chance.
    """
    plain = _precision(calibration.codes(results, sure=0), similar)
    return {
        sure: replace(grades, worth=np.ones_like(grades.worth))
        if _surely_below_0(_precision(calibration.codes(results, sure=sure), similar) - plain)
        else grades
        for sure, grades in calibration.grades.items()
    }


def _surely_below_0(gains: Floats) -> bool:
    """Return whether the mean of gains (n,) is below 0 by more than two of its standard errors."""
    return len(gains) > 1 and bool(gains.mean() < -2 * gains.std(ddof=1) / len(gains) ** 0.5)


def _precision(codes: Codes, similar: Floats) -> Floats:
    """Return the average precision (n,) of images that search one another, in the mean over all orders of ties.

    Images without similar ones are left out. (The order of the images is often that of their classes: by it ties would
    look better or worse than they are.)
    """
    distances = _distances(codes, codes)
    np.fill_diagonal(distances, np.inf)
    found: Floats = mean_precision(_places(distances), similar > 0)[similar.any(axis=1)]
    return found


def _places(distances: Floats) -> NDArray[np.int64]:
    """Return how many different smaller values each of the distances (m, n) has in its row."""
    order = np.argsort(distances, axis=1)
    further = np.diff(np.take_along_axis(distances, order, axis=1), axis=1, prepend=-np.inf) > 0
    places = np.empty(distances.shape, np.int64)
    np.put_along_axis(places, order, np.cumsum(further, axis=1) - 1, axis=1)
    return places


def _match(query: Codes, database: Codes, similar: Floats) -> Curve:
    """Return the probability that a query and another of n share a label as a curve of their distance."""
    apart = ~np.eye(len(query), dtype=bool)
    distances = _distances(query, database)[apart]
    values, of, counts = np.unique(distances, return_inverse=True, return_counts=True)  # there are few different ones
    share = np.bincount(of, similar[apart]) / counts
    different = rising_curve(values, 1 - share, counts)
    at = np.unique(np.quantile(distances, _RANKS))
    return Curve(at, np.clip(1 - different(at), _NEVER, 1 - _NEVER))


def _distances(query: Codes, database: Codes) -> Floats:
    """Return the distance of each query to each code of the database, as a search shows it: (n, m)."""
    return shown(pair_distances(query, database)).astype(np.float64)
