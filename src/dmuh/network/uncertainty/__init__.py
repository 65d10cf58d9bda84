"""Sources of uncertainty by name. A new one is a file here with an UncertaintySource, and a line in the table."""

from torch import Tensor

from dmuh.network.hash_network import HashNetwork
from dmuh.network.uncertainty.base import Examples, Trained, UncertaintySource
from dmuh.network.uncertainty.classes import Classes
from dmuh.network.uncertainty.margin import Margin
from dmuh.network.uncertainty.momentum import MomentumCopy

__all__ = [
    "UNCERTAINTY_SOURCES",
    "Classes",
    "Examples",
    "Margin",
    "MomentumCopy",
    "Trained",
    "UncertaintySource",
    "outputs_and_uncertainty",
]

UNCERTAINTY_SOURCES: dict[str, type[UncertaintySource]] = {
    "margin": Margin,
    "copy": MomentumCopy,
    "classes": Classes,
}


def outputs_and_uncertainty(
    network: HashNetwork, source: UncertaintySource | None, activations: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs (B, n_bits) from the activations, and their uncertainty (B, n_bits) where it has a source."""
    if source is None:
        return network.upper(activations), None
    return source.outputs_and_uncertainty(network, activations)
