"""Does the uncertainty of a run mean anything? What its queries say, set beside the plain margin |h|."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from dmuh.datasets import Dataset
from dmuh.encoder.onnx_export import WholeNetwork, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.images import ImageReader, Reading
from dmuh.network import HashNetwork, TorchNetwork, choose_device, load_networks
from dmuh.runs import Run, open_run
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.measuring import compute_outputs

Floats = NDArray[np.floating[Any]]

_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_BINS = 10
_SHIFT = 1 / 32  # of the side of the image
_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def study(run: Run, dataset: Dataset) -> dict[str, Any]:
    """Return what the uncertainty of a run's test queries predicts, and what the margin |h| predicts.

    images   rank correlation of an image's uncertainty with its average precision, and MAP of the more certain half of
             the queries and of the other half
    bits     how well a bit's uncertainty tells which bits flip when the image is shifted a little: the area under the
             ROC curve, and the share of bits that flip in each tenth of the bits by uncertainty; images only
    u        the percentiles of the uncertainty over bits and over images
    """
    _, config, _, split = open_run(run.path, dataset)
    network, source = load_networks(run.load_model(), choose_device(config.training.device))
    with open_inputs(
        network, dataset, split.query, keep=config.network.freeze == "all", mirrored=split.query[:0],
        reading=Reading.by(config),
    ) as inputs:  # fmt: skip
        queries = compute_outputs(network, source, inputs, split.query)
    precision = np.array(run.evaluation()["average_precision"])  # of the queries that could be read, as `queries` are
    predictors: dict[str, Floats] = {"margin": -np.abs(queries.outputs)}
    if queries.uncertainty is not None:
        predictors["uncertainty"] = queries.uncertainty
    found: dict[str, Any] = {
        "images": {name: _of_images(values.mean(axis=1), precision) for name, values in predictors.items()}
    }
    if queries.uncertainty is not None:
        found |= _distribution(queries.uncertainty, precision)
    if dataset.vectors is None:
        flips = _flips(network, dataset, queries.positions, queries.outputs >= 0)  # (queries, n_bits)
        found["bits"] = {name: _of_bits(values, flips) for name, values in predictors.items()}
        found["flip_rate"] = float(flips.mean())
    return found


def _distribution(uncertainty: Floats, precision: Floats) -> dict[str, Any]:
    """Return the percentiles of uncertainty (queries, n_bits), and that of each query beside its precision."""
    of_images = uncertainty.mean(axis=1)
    return {
        "u": {
            "percentiles": list(_PERCENTILES),
            "bits": np.percentile(uncertainty, _PERCENTILES).tolist(),
            "images": np.percentile(of_images, _PERCENTILES).tolist(),
        },
        "scatter": {"uncertainty": of_images.tolist(), "average_precision": precision.tolist()},
    }


def _of_images(uncertainty: Floats, precision: Floats) -> dict[str, float]:
    order = np.argsort(uncertainty, kind="stable")
    half = len(order) // 2
    return {
        "rank_correlation": _rank_correlation(uncertainty, precision),
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


def _rank_correlation(a: Floats, b: Floats) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _flips(network: HashNetwork, dataset: Dataset, positions: NDArray[np.int64], bits: NDArray[np.bool_]) -> Floats:
    """Return the share (n, n_bits) of small shifts of each image, one per direction, that flip each bit."""
    on_cpu = network.device.type == "cpu"
    runner = OnnxNetwork(to_onnx(WholeNetwork(network, None))) if on_cpu else TorchNetwork(network, None)
    side = network.backbone.preprocess.size
    step = max(1, round(side * _SHIFT))
    flips = np.zeros(bits.shape)
    batches = [positions[n : n + 64] for n in range(0, len(positions), 64)]
    done = 0
    with ImageReader(dataset.images, network.backbone.preprocess, Reading(0)) as reader:
        for batch in reader.batches(batches):
            n = len(batch.positions)
            padded = np.pad(batch.pixels, ((0, 0), (step, step), (step, step), (0, 0)), mode="edge")
            for down, right in _DIRECTIONS:
                top, left = step + down * step, step + right * step
                shifted = np.ascontiguousarray(padded[:, top : top + side, left : left + side])
                flips[done : done + n] += (runner.run(shifted)["outputs"] >= 0) != bits[done : done + n]
            done += n
    return flips / len(_DIRECTIONS)
