"""Where the uncertainty of codes comes from."""

from torch import Tensor

from dmuh.network.hash_network import HashNetwork
from dmuh.network.heads import KernelHead
from dmuh.network.momentum import MomentumCopy


class Margin:
    """Uncertainty without a copy: how near an output is to 0, where its bit turns over."""

    def of(self, outputs: Tensor) -> Tensor:
        """Return 1 / (1 + |h|): 1 for a bit that is undecided, less the farther its output is from that."""
        return 1 / (1 + outputs.abs())


Doubt = MomentumCopy | Margin  # what codes get their uncertainty from


def outputs_and_uncertainty(
    network: HashNetwork, doubt: Doubt | None, activations: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs (B, n_bits) from the activations, and how far the copy's are from them (Eq. 4), or from 0."""
    if doubt is None:
        return network.upper(activations), None
    if isinstance(doubt, Margin):
        outputs = network.upper(activations)
        return outputs, doubt.of(outputs)
    own, copied = network.hash_layer, doubt.network.hash_layer
    if isinstance(own, KernelHead) and isinstance(copied, KernelHead):  # all below their weights is frozen, so the same
        similar = own.similarities(network.head_inputs(activations))
        outputs, others = own.of_similarities(similar), copied.of_similarities(similar)
    else:
        outputs, others = network.upper(activations), doubt.upper(activations)
    return outputs, (outputs - others).abs()
