"""The margin: how near an output is to 0."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dmuh.network.hash_network import HashNetwork
from dmuh.network.uncertainty.base import State, Trained, UncertaintySource


class Margin(UncertaintySource):
    """Uncertainty without a copy: how near an output is to 0, where its bit turns over."""

    name = "margin"

    @classmethod
    def after_training(cls, trained: Trained) -> "Margin":
        """Return it: every network has one."""
        del trained
        return cls()

    @classmethod
    def load(cls, network: HashNetwork, about: Mapping[str, Any], parts: Mapping[str, State]) -> "Margin":
        """Return it: the model file keeps nothing of it but its name."""
        del network, about, parts
        return cls()

    def uncertainty(self, network: HashNetwork, activations: Tensor, outputs: Tensor) -> Tensor:
        """Return 1 / (1 + |h|): 1 for a bit that is undecided, less the farther its output is from that."""
        del network, activations
        return 1 / (1 + outputs.abs())
