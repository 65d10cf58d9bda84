"""Codes of images whose features a training left in the cache: they are made from these, to the last bit the same.

ONNX Runtime runs every image by itself, the frozen part that gave the features as well as the part above them. So the
two parts, one after the other, give what the whole network gives. (The part above in torch does not.)
"""

import logging

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.encoder.calibration import DEFAULT_SURE
from dmuh.encoder.onnx_export import TrainedPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.images import Reading
from dmuh.network import choose_device, load_networks
from dmuh.protocols import Positions
from dmuh.runs import Run
from dmuh.trainer.activation_cache import ActivationCache
from dmuh.trainer.measuring import spread

log = logging.getLogger(__name__)

_BATCH = 4096  # rows that are in memory together
_COMPARED = 16  # images that are encoded in both ways before the rest is trusted


def encode_by_cache(
    run: Run, hasher: Hasher, data: Dataset, reading: Reading, least: int, sure: int = DEFAULT_SURE
) -> Codes | None:
    """Return the codes of a data set's images as `hasher.encode` does, without reading those in the cache.

    None where that does not pay or cannot be: with fewer than `least` images in the cache, a backbone that trained, a
    GPU, or features that another machine computed, which differ in their last bits.
    """
    model = run.load_model()
    if model.metadata["freeze"] != "all" or data.vectors is not None or choose_device("auto").type != "cpu":
        return None
    network, source = load_networks(model)
    rows, found = ActivationCache(network, data).complete_rows()
    if len(found) < least:
        return None
    trained_part = OnnxNetwork(to_onnx(TrainedPart(network, source)))

    def encode(positions: Positions) -> Codes:
        return hasher.calibration.codes(_run(trained_part, rows, positions), positions, sure)

    sample = spread(found, _COMPARED)
    images = hasher.encode(data.take(sample), ids=sample, on_bad_image="skip", sure=sure)
    if encode(sample) != images:
        log.info("the features in the cache are of another machine: the images are read again")
        return None
    cached, rest = encode(found), np.setdiff1d(np.arange(len(data)), found)
    log.info("the features of %s of %s images are in the cache", f"{len(found):,}", f"{len(data):,}")
    if not len(rest):
        return cached
    return _merged(cached, hasher.encode(data.take(rest), ids=rest, reading=reading, sure=sure))


def _run(trained_part: OnnxNetwork, rows: NDArray[np.float32], positions: Positions) -> dict[str, NDArray[np.float32]]:
    """Return what the part above the features gives for the rows at these positions."""
    batches = [positions[n : n + _BATCH] for n in range(0, len(positions), _BATCH)]
    results = [trained_part.run(np.ascontiguousarray(rows[batch])) for batch in batches]
    return {name: np.concatenate([result[name] for result in results]) for name in trained_part.outputs}


def _merged(codes: Codes, others: Codes) -> Codes:
    """Return the codes of both, in the order of their ids."""
    both = Codes.concatenated([codes, others])
    return both[np.argsort(both.ids)]
