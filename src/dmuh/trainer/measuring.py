"""What is measured of a network while it trains."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.codes import Codes
from dmuh.datasets import Labels
from dmuh.encoder.calibration import DEFAULT_SURE, Calibration
from dmuh.metrics import evaluate
from dmuh.network import Examples, HashNetwork, MomentumCopy, UncertaintySource, outputs_and_uncertainty
from dmuh.protocols import Positions, Split
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.distributed import Group
from dmuh.trainer.inputs import Inputs, part_slice

_TRACED = 16  # training images whose outputs are written down after each epoch
_TRAIN_QUERIES = 1000  # training images at most that are queries of the training MAP


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs float32 (n, n_bits) of the images at `positions` (n,), and what the source of uncertainty says."""

    positions: Positions
    outputs: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None

    def codes(self, calibration: Calibration, sure: int = DEFAULT_SURE) -> Codes:
        """Return the codes, whose ids are the positions, with `sure` bits of sureness per bit."""
        known = {} if self.uncertainty is None else {"uncertainty": self.uncertainty}
        return calibration.codes({"outputs": self.outputs, **known}, self.positions, sure)


@torch.inference_mode()
def compute_outputs(
    network: HashNetwork,
    source: UncertaintySource | None,
    inputs: Inputs,
    positions: Positions,
    *,
    batch_size: int = 128,
) -> Outputs:
    """Compute the outputs of the images at `positions`, and their uncertainty where it has a source."""
    batches = [positions[i : i + batch_size] for i in range(0, len(positions), batch_size)]
    read, outputs, uncertainty = [positions[:0]], [], []
    for batch in inputs.batches(batches):
        if len(batch.positions):
            h, u = outputs_and_uncertainty(network, source, batch.activations)
            read.append(batch.positions)
            outputs.append(h.float().cpu().numpy())
            if u is not None:
                uncertainty.append(u.float().cpu().numpy())
    empty = np.empty((0, network.n_bits), np.float32)
    return Outputs(
        np.concatenate(read),
        np.concatenate([empty, *outputs]),
        None if source is None else np.concatenate([empty, *uncertainty]),
    )


@torch.no_grad()  # not inference mode, whose tensors nothing can learn from
def examples_of(network: HashNetwork, inputs: Inputs, positions: Positions, labels: Labels) -> Examples:
    """Compute what the hash layer sees of the images at `positions` and gives for them, with their labels."""
    batches = [positions[i : i + 512] for i in range(0, len(positions), 512)]
    read, features, outputs = [positions[:0]], [], []
    for batch in inputs.batches(batches):
        rows = network.head_inputs(batch.activations)
        read.append(batch.positions)
        features.append(rows.float().cpu())
        outputs.append(network.hash_layer(rows).float().cpu())
    of_read = torch.from_numpy(labels[np.concatenate(read)]).float()
    nothing = torch.empty(0, network.backbone.n_features), torch.empty(0, network.n_bits)
    return Examples(torch.cat([nothing[0], *features]), torch.cat([nothing[1], *outputs]), of_read)


def train_outputs(network: HashNetwork, inputs: Inputs, split: Split, group: Group) -> Tensor:
    """Return the outputs (N, n_bits) of all training images; of those that could not be read zeros."""
    positions, found = _outputs(network, inputs, split.train, group)
    outputs = torch.zeros(len(split.train), network.n_bits)
    outputs[np.searchsorted(split.train, positions)] = torch.from_numpy(found)
    return outputs


def _outputs(
    network: HashNetwork, inputs: Inputs, positions: Positions, group: Group
) -> tuple[Positions, NDArray[np.float32]]:
    """Return which images could be read and their outputs (n, n_bits); each process computes its part of them."""
    part = part_slice(len(positions), (group.rank, group.size))
    found = compute_outputs(network, None, inputs, positions[part])
    read, outputs = (torch.from_numpy(array).to(group.device) for array in (found.positions, found.outputs))
    return group.gather(read).cpu().numpy(), group.gather(outputs).cpu().numpy()


def watched_maps(context: TrainingContext, network: HashNetwork, inputs: Inputs) -> dict[str, float]:
    """Return the MAP of validation and of training images as queries of the training images; none without labels.

    All processes compute codes; the first one alone measures them.
    """
    data, split, group = context.data, context.split, context.group
    if not data.classes:
        return {}

    def codes(positions: Positions) -> Codes:
        read, outputs = _outputs(network, inputs, positions, group)
        return Codes.from_outputs(outputs, ids=read)

    database = codes(split.train)
    queries = {"train_map": database[spread(np.arange(len(database)), _TRAIN_QUERIES)]}
    if len(split.validation):
        queries["validation_map"] = codes(split.validation)
    if not group.first:
        return {}
    return {
        name: evaluate(query, database, data.labels[query.ids], data.labels[database.ids], ks=(), ranking="hamming").map
        for name, query in queries.items()
    }


def trace(
    network: HashNetwork, momentum: MomentumCopy | None, inputs: Inputs, split: Split, epoch: int
) -> dict[str, Any]:
    """Return the outputs of a few training images, to be written down."""
    traced = compute_outputs(network, momentum, inputs, spread(split.train, _TRACED))
    line: dict[str, Any] = {"epoch": epoch, "positions": traced.positions.tolist()}
    line["outputs"] = np.round(traced.outputs.astype(float), 4).tolist()
    if traced.uncertainty is not None:
        line["uncertainty"] = np.round(traced.uncertainty.astype(float), 6).tolist()
    return line


def spread(positions: Positions, most: int) -> Positions:
    """Return up to `most` positions, evenly spread."""
    return (
        positions[np.unique(np.linspace(0, len(positions) - 1, most).astype(np.int64))] if len(positions) else positions
    )
