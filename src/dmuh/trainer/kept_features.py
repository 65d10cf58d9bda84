"""Features of a data set's images by a frozen network, from the cache of activations where a training left them."""

import numpy as np
from numpy.typing import NDArray

from dmuh.backbones import create_backbone
from dmuh.datasets import Dataset
from dmuh.features import BACKBONE, unit_vectors
from dmuh.images import ImageReader, Reading
from dmuh.network import HashNetwork, load_networks
from dmuh.protocols import Positions
from dmuh.runs import Run
from dmuh.trainer.activation_cache import ActivationCache


def frozen_network(run: Run | None = None) -> HashNetwork:
    """Return the network of a run whose backbone is frozen as a whole, else EfficientNet-Lite0 with ImageNet weights.

    What a backbone learned from labels says little of whether they are right.
    """
    if run is not None and run.finished:
        model = run.load_model()
        if model.metadata["freeze"] == "all":
            return load_networks(model)[0]
    backbone = create_backbone(BACKBONE)
    backbone.load_pretrained()
    return HashNetwork(backbone, 1, "all")


def image_features(
    data: Dataset, reading: Reading, network: HashNetwork | None = None
) -> tuple[NDArray[np.float32], Positions]:
    """Return the features of a data set's images, float32 (n, n_features) of length 1, and their positions (n,).

    Those that are not in the cache are computed and kept there. Images that cannot be read are left out, or are an
    error, as `reading` says.
    """
    network = network or frozen_network()
    positions = np.arange(len(data))
    with ImageReader(data.images, network.backbone.preprocess, reading) as reader:
        rows, bad = ActivationCache(network, data).rows(positions, reader, mirror=False, count=reading.progress)
    readable = np.setdiff1d(positions, bad)
    return unit_vectors(np.asarray(rows[readable])), readable
