"""The momentum copy of a network (Eq. 3)."""

import copy

import torch
from torch import Tensor, nn

from dmuh.network.hash_network import HashNetwork


class MomentumCopy(nn.Module):
    """The momentum-updated network (Eq. 3): a copy whose weights follow another network's, smoothed by `alpha`.

    What is frozen is the network's own, not copied.
    """

    def __init__(self, network: HashNetwork, alpha: float) -> None:
        super().__init__()
        shared = {id(tensor): tensor for tensor in network.frozen()}
        self.network = copy.deepcopy(network, shared).requires_grad_(False)
        self.alpha = alpha
        self._followed: tuple[HashNetwork, list[tuple[Tensor, Tensor]]] | None = None

    @torch.no_grad()
    def update(self, network: HashNetwork) -> None:
        """θ_m ← α·θ_m + (1-α)·θ_h. Buffers, such as running statistics, are copied."""
        if (
            self._followed is None or self._followed[0] is not network
        ):  # to look all weights up takes longer than a step
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
            kept = ours.clone()
            ours.copy_(theirs[key])
            theirs[key].copy_(kept)

    @torch.no_grad()
    def upper(self, activations: Tensor) -> Tensor:
        """Compute the copy's outputs (B, n_bits), without gradient."""
        return self.network.upper(activations)
