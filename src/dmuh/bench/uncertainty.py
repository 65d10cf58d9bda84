"""Does the uncertainty of a run mean anything? What its queries say of the probability that bits turn over."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.encoder.calibration import Calibration
from dmuh.images import ImageReader, Reading
from dmuh.network import MomentumCopy, choose_device, load_networks
from dmuh.protocols import protocol_of
from dmuh.runs import Run, open_run
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.kinds import rank_correlation
from dmuh.trainer.measuring import compute_outputs

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.uint8]

_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_BINS = 10
_LEAST_SURE = 8  # bits
_SHIFT = 1 / 32  # of the side of the image
_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def study(run: Run, dataset: Dataset) -> dict[str, Any]:
    """Return what the probability that bits turn over says of a run's test queries, and what other measures say.

    The measures are `turnover`, that probability, `margin`, how near the output is to 0, and, where the run's codes are
    read from the averaged copy, `copy`, the distance to it, and `ratio`, that distance beside the output's own size.

    images       rank correlation of an image's mean with its average precision, and MAP of the surer half of the
                 queries and of the other half; `least` is the mean of the probability over the eight least sure bits,
                 `image` the uncertainty of the image as a whole, by which images are put into order
    bits         how well a bit's number tells which bits flip when the image is shifted a little: the area under the
                 ROC curve, and the share of bits that flip in each tenth of the bits; images only
    calibration  of the probability: the mean over tenths of the bits of how far it is from the share of bits that are
                 not those of most database images that share a label; and both for each tenth
    u            the percentiles of the copy's distance over bits and over images
    scatter      the uncertainty of each query as a whole beside its average precision
    """
    _, config, _, split = open_run(run.path, dataset)
    model = run.load_model()
    network, source = load_networks(model, choose_device(config.training.device))
    with open_inputs(
        network, dataset, split.query, keep=config.network.freeze == "all", mirrored=split.query[:0],
        reading=Reading.by(config),
    ) as inputs:  # fmt: skip
        queries = compute_outputs(network, source, inputs, split.query)
    precision = np.array(run.evaluation()["average_precision"])  # of the queries that could be read, as `queries` are
    codes = queries.codes(Calibration.of_card(model.metadata))
    assert codes.uncertainty is not None, "fresh codes know their uncertainty"
    measures: dict[str, Floats] = {"turnover": codes.uncertainty, "margin": -np.abs(queries.outputs)}
    found: dict[str, Any] = {}
    if isinstance(source, MomentumCopy) and queries.uncertainty is not None:
        measures["copy"] = queries.uncertainty
        measures["ratio"] = queries.uncertainty / np.maximum(np.abs(queries.outputs), 1e-6)
        found["u"] = _distribution(queries.uncertainty)
    of_images = codes.image_uncertainty
    assert of_images is not None, "what is known of bits is known of images"
    found["scatter"] = {"uncertainty": of_images.tolist(), "average_precision": precision.tolist()}
    found["images"] = {name: _of_images(values.mean(axis=1), precision) for name, values in measures.items()}
    least_sure = np.sort(codes.uncertainty, axis=1)[:, -_LEAST_SURE:]
    found["images"]["least"] = _of_images(least_sure.mean(axis=1), precision)
    found["images"]["image"] = _of_images(of_images, precision)
    _, database = run.load_codes()
    counted = protocol_of(config.protocol, config.data.dataset).counted(dataset.labels, split)
    turned = turned_over(codes, database, counted[codes.ids], counted[database.ids])
    found["calibration"] = reliability(codes.uncertainty, turned)
    if dataset.vectors is None:
        hasher = Hasher.load(run.path, config.training.device)
        flips = _flips(hasher, dataset, queries.positions, codes.unpack().astype(bool))  # (queries, n_bits)
        found["bits"] = {name: _of_bits(values, flips) for name, values in measures.items()}
        found["flip_rate"] = float(flips.mean())
    return found


def turned_over(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels) -> Floats:
    """Return which bits (queries, n_bits) are not those of most database images that share a label: 0, 1 or ½."""
    similar = (query_labels.astype(np.float32) @ database_labels.T.astype(np.float32) > 0).astype(np.float32)
    own, others = (2.0 * codes.unpack().astype(np.float32) - 1 for codes in (query, database))
    turned: Floats = (1 - own * np.sign(similar @ others)) / 2
    return turned


def reliability(probability: Floats, happened: Floats) -> dict[str, Any]:
    """Return how far a probability (…) is from what happened (…), 0 to 1: the mean over tenths, and each tenth."""
    order = np.array_split(np.argsort(probability.ravel(), kind="stable"), _BINS)
    said = [float(probability.ravel()[part].mean()) for part in order]
    seen = [float(happened.ravel()[part].mean()) for part in order]
    return {"error": float(np.abs(np.subtract(said, seen)).mean()), "said": said, "seen": seen}


def _distribution(uncertainty: Floats) -> dict[str, Any]:
    """Return the percentiles of the copy's distance (queries, n_bits) over bits and over images."""
    return {
        "percentiles": list(_PERCENTILES),
        "bits": np.percentile(uncertainty, _PERCENTILES).tolist(),
        "images": np.percentile(uncertainty.mean(axis=1), _PERCENTILES).tolist(),
    }


def _of_images(uncertainty: Floats, precision: Floats) -> dict[str, float]:
    order = np.argsort(uncertainty, kind="stable")
    half = len(order) // 2
    return {
        "rank_correlation": rank_correlation(uncertainty, precision),
        "map_of_certain_half": float(precision[order[:half]].mean()),
        "map_of_other_half": float(precision[order[half:]].mean()),
    }


def _of_bits(uncertainty: Floats, flips: Floats) -> dict[str, Any]:
    values, rates = uncertainty.ravel(), flips.ravel()
    tenths = np.array_split(np.argsort(values, kind="stable"), _BINS)
    by_tenth = [float(rates[tenth].mean()) for tenth in tenths]
    return {"auc": area_under_curve(values, rates), "flip_rate_by_tenth": by_tenth}


def area_under_curve(score: Floats, share: Floats) -> float:
    """Return the chance that of a flipped and an unflipped bit the flipped one scores higher, ties counting half.

    score  (n,) of each bit
    share  (n,) of the shifts that flip it: it stands among the flipped with that weight, among the others with the rest
    """
    order = np.argsort(score, kind="stable")
    _, first = np.unique(score[order], return_index=True)
    flipped = np.add.reduceat(share[order], first)
    unflipped = np.add.reduceat(1 - share[order], first)
    below = np.cumsum(unflipped) - unflipped
    total = float(flipped.sum() * unflipped.sum())
    return float((flipped * (below + unflipped / 2)).sum()) / total if total else float("nan")


def _flips(hasher: Hasher, dataset: Dataset, positions: NDArray[np.int64], bits: NDArray[np.bool_]) -> Floats:
    """Return the share (n, n_bits) of small shifts of each image, one per direction, that flip each bit."""
    side = hasher.preprocess.size
    step = max(1, round(side * _SHIFT))
    flips = np.zeros(bits.shape)
    batches = [positions[n : n + 64] for n in range(0, len(positions), 64)]
    done = 0
    with ImageReader(dataset.images, hasher.preprocess, Reading(0)) as reader:
        for batch in reader.batches(batches):
            n = len(batch.positions)
            padded = np.pad(batch.pixels, ((0, 0), (step, step), (step, step), (0, 0)), mode="edge")
            for down, right in _DIRECTIONS:
                top, left = step + down * step, step + right * step
                shifted = np.ascontiguousarray(padded[:, top : top + side, left : left + side])
                flips[done : done + n] += hasher.encode_pixels(shifted).unpack().astype(bool) != bits[done : done + n]
            done += n
    return flips / len(_DIRECTIONS)
