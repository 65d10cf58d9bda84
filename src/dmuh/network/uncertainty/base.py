"""What a source of uncertainty is."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dmuh.network.hash_network import HashNetwork

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Examples:
    """Images that a source of uncertainty may learn from, on the CPU.

    features  float32 (n, n_features): what the hash layer sees
    outputs   float32 (n, n_bits)
    labels    float32 (n, classes), 0/1
    """

    features: Tensor
    outputs: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training gives a source of uncertainty.

    network   what was trained
    copy      what was averaged beside it, if anything
    examples  computes the training images and those that are held out; None where images have no labels
    """

    network: HashNetwork
    copy: "UncertaintySource | None"
    examples: Callable[[], tuple[Examples, Examples]] | None = None


class UncertaintySource(nn.Module, abc.ABC):
    """Where codes get their uncertainty from: a number per bit, the larger the less sure the bit is.

    The number has no scale of its own: `dmuh.trainer.calibrating` finds the probability of turning over behind it.

    name      its name in the setting `uncertainty` and in the model file
    is_copy   whether it is the averaged copy that the training keeps
    together  whether the bits of an image are sure or unsure together, as where it is the image that is unsure
    alpha     momentum coefficient of the copy, for the model file; None for sources without one
    """

    name: ClassVar[str]
    is_copy: ClassVar[bool] = False
    together: ClassVar[bool] = False
    alpha: float | None = None

    @classmethod
    @abc.abstractmethod
    def after_training(cls, trained: Trained) -> "UncertaintySource | None":
        """Return the source for what was just trained; None where that has nothing to take uncertainty from."""

    @classmethod
    @abc.abstractmethod
    def load(cls, network: HashNetwork, about: Mapping[str, Any], parts: Mapping[str, State]) -> "UncertaintySource":
        """Return the source of a model file, from what it says about itself and its arrays by part."""

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Return what the model file keeps of it beside the network: arrays by part, as `load` takes them."""
        return {}

    @abc.abstractmethod
    def uncertainty(self, network: HashNetwork, activations: Tensor, outputs: Tensor) -> Tensor:
        """Compute the uncertainty (B, n_bits) of the outputs (B, n_bits) that the network gives for the activations."""

    def outputs_and_uncertainty(self, network: HashNetwork, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute outputs and uncertainty (B, n_bits); a source may share between them what both need."""
        outputs = network.upper(activations)
        return outputs, self.uncertainty(network, activations, outputs)
