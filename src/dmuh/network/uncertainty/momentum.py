"""The momentum copy of a network (Eq. 3)."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dmuh.network.hash_network import HashNetwork
from dmuh.network.heads import KernelHead
from dmuh.network.uncertainty.base import State, Trained, UncertaintySource


class MomentumCopy(UncertaintySource):
    """The momentum-updated network (Eq. 3): a copy whose weights follow another network's, smoothed by `alpha`.

    Frozen weights are shared with the network, not copied. The uncertainty of a bit is |h - m| (Eq. 4): how far the
    copy's output m is from the network's output h.
    """

    name = "copy"
    is_copy = True
    alpha: float

    def __init__(self, network: HashNetwork, alpha: float) -> None:
        super().__init__()
        shared = {id(tensor): tensor for tensor in network.frozen()}
        self.network = copy.deepcopy(network, shared).requires_grad_(False)
        self.alpha = alpha
        self._followed: tuple[HashNetwork, list[tuple[Tensor, Tensor]]] | None = None

    @torch.no_grad()
    def update(self, network: HashNetwork) -> None:
        """θ_m ← α·θ_m + (1-α)·θ_h. Buffers, such as running statistics, are copied."""
        if self._followed is None or self._followed[0] is not network:  # a lookup of all weights is slower than a step
            theirs = network.trained_state()
            pairs = [(ours, theirs[key]) for key, ours in self.network.trained_state().items()]
            self._followed = network, pairs
        for ours, their in self._followed[1]:
            if isinstance(their, nn.Parameter):
                ours.lerp_(their, 1 - self.alpha)
            else:
                ours.copy_(their)

    @torch.no_grad()
    def exchange(self, network: HashNetwork) -> None:
        """Give the network the copy's weights, and the copy the network's."""
        theirs = network.trained_state()
        for key, ours in self.network.trained_state().items():
            before = ours.clone()
            ours.copy_(theirs[key])
            theirs[key].copy_(before)

    @torch.no_grad()
    def upper(self, activations: Tensor) -> Tensor:
        """Compute the copy's outputs (B, n_bits), without gradient."""
        return self.network.upper(activations)

    @classmethod
    def after_training(cls, trained: Trained) -> UncertaintySource | None:
        """Return the copy that was averaged beside the network."""
        return trained.copy

    @classmethod
    def load(cls, network: HashNetwork, about: Mapping[str, Any], parts: Mapping[str, State]) -> "MomentumCopy":
        """Return the copy of a model file."""
        momentum = cls(network, about["alpha"])
        momentum.network.load_trained_state(parts["momentum"])
        return momentum

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Return the weights in which it differs from the network."""
        return {"momentum": self.network.trained_state()}

    def uncertainty(self, network: HashNetwork, activations: Tensor, outputs: Tensor) -> Tensor:
        """Return |h - m| (Eq. 4)."""
        del network
        return (outputs - self.upper(activations)).abs()

    def outputs_and_uncertainty(self, network: HashNetwork, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute outputs and uncertainty; of two kernel heads the similarities, which are the same, only once."""
        head, copied_head = network.hash_layer, self.network.hash_layer
        if not (isinstance(head, KernelHead) and isinstance(copied_head, KernelHead)):
            return super().outputs_and_uncertainty(network, activations)
        similarities = head.similarities(network.head_inputs(activations))
        outputs, copied = head.of_similarities(similarities), copied_head.of_similarities(similarities)
        return outputs, (outputs - copied).abs()
