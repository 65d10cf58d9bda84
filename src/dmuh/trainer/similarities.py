"""Outputs of a kernel head by similarities that are computed once for all networks with the same anchors."""

import hashlib

import numpy as np
import torch
from torch import nn

from dmuh.backbones import create_backbone
from dmuh.network import HashNetwork, Margin, UncertaintySource
from dmuh.network.heads import KernelHead
from dmuh.protocols import Positions
from dmuh.trainer.inputs import CachedInputs, Inputs

_MOST = 2**30  # bytes


class Similarities:
    """The similarities of images to anchors that were computed last: a bench has many networks on one split."""

    def __init__(self) -> None:
        self._key = ""
        self._inputs: CachedInputs | None = None

    @torch.inference_mode()
    def below(
        self, network: HashNetwork, source: UncertaintySource | None, inputs: Inputs, positions: Positions
    ) -> tuple[HashNetwork, Inputs]:
        """Return the last layer of a network with a kernel head, and what goes into it for the images at `positions`.

        Any other network, and one whose similarities are too many to be kept, is returned as it is.
        """
        head = network.hash_layer
        if not isinstance(head, KernelHead) or not isinstance(inputs, CachedInputs) or not isinstance(source, Margin):
            return network, inputs
        if len(positions) * len(head.anchors) * 4 > _MOST:
            return network, inputs
        key = _digest(inputs.name, positions, head, network)
        if self._inputs is None or key != self._key or not inputs.name:
            self._inputs = None
            self._inputs = inputs.mapped(lambda rows: head.similarities(network.head_inputs(rows)), positions)
            self._key = key
        return _last_layer(head, network), self._inputs


def _digest(name: str, positions: Positions, head: KernelHead, network: HashNetwork) -> str:
    digest = hashlib.sha256(name.encode() + np.ascontiguousarray(positions).tobytes())
    for tensor in (head.anchors, head.width, network.feature_mean, network.feature_scale):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _last_layer(head: KernelHead, network: HashNetwork) -> HashNetwork:
    """Return the network from similarities to outputs."""
    last = HashNetwork(create_backbone(f"features:{len(head.anchors)}"), network.n_bits, "all")
    layer = nn.Linear(len(head.anchors), network.n_bits)
    with torch.no_grad():
        layer.weight.copy_(head.weight.T)
        layer.bias.copy_(head.bias)
    last.hash_layer = layer
    return last.to(network.device)
