"""Shallow methods are fitted in one go, to the features of a frozen backbone."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from dmuh.network import HashNetwork
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.inputs import Inputs
from dmuh.trainer.measuring import trace, watched_maps

if TYPE_CHECKING:
    from dmuh.methods import ShallowMethod

_BATCH = 4096  # images whose features are taken together


def fit_shallow(method: "type[ShallowMethod]", context: TrainingContext, network: HashNetwork, inputs: Inputs) -> None:
    """Fit a shallow method to the training images' features, and make what it found the network's hash layer."""
    began = time.perf_counter()
    data, run, train = context.data, context.run, context.split.train
    batches = [train[n : n + _BATCH] for n in range(0, len(train), _BATCH)]
    read = [(batch.positions, batch.activations.cpu().numpy()) for batch in inputs.batches(batches)]
    positions = np.concatenate([at for at, _ in read])
    fitted = method.of(context.config.options, context.config.network.bits, context.settings.seed)
    fitted.fit(np.concatenate([rows for _, rows in read]), data.labels[positions] if data.classes else None)
    network.hash_layer = fitted.head_.to(network.device)
    seconds = time.perf_counter() - began
    line: dict[str, Any] = {"epoch": 1, "seconds": seconds, "images_per_second": len(positions) / seconds}
    line |= {"loss": fitted.losses_[-1]} if fitted.losses_ else {}
    line |= watched_maps(context, network, inputs)
    run.cut_logs(0)  # the lines of a fit that was interrupted
    run.log_epoch(line, trace(network, None, inputs, context.split, 1))
