"""What a deep method is: an objective over a batch, its options and its defaults.

The loop runs the network, computes the objective's terms, sums and logs them, and steps. A method that needs more
declares it: with an `alpha` a momentum copy is kept, whose outputs then come with each batch; what a method remembers
over the training set, by the images' `index`, it registers as buffers, which checkpoints hold; `begin_epoch` is where
it makes its discrete steps.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dmuh.config import setting

NORMALIZATIONS = ("mean", "train", "pairs")


@dataclass(frozen=True)
class TrainBatch:
    """What an objective is given about B training images beside their outputs.

    labels            float32 (B, classes), 0/1
    index             int64 (B,): where the images stand in the training set
    momentum_outputs  (B, n_bits) of the momentum copy, for methods that keep one
    """

    labels: Tensor
    index: Tensor
    momentum_outputs: Tensor | None = None

    @property
    def similarity(self) -> Tensor:
        """S (B, B): 1 where two images share a label, else 0."""
        return similarity_of(self.labels, self.labels)


@dataclass(frozen=True)
class NoOptions:
    """The options of a method that has none."""


class Objective(nn.Module, abc.ABC):
    """One deep method: (outputs, batch) → named terms, of which the loop minimises the sum.

    Options   frozen dataclass of its settings
    kind      deep, for `dmuh list`
    title     one line for `dmuh list`
    paper     where it comes from
    year      and when
    defaults  training settings that differ from the general ones
    presets   named groups of settings; those of the paper name all that matters in training, so that what its authors
              do not say is our choice in plain sight, and no default is taken over silently
    advice    what to change when all codes become alike
    needs_labels  whether it learns from labels, as all deep ones do
    takes_texts   whether it is for images and texts, see `dmuh.methods.images_and_texts`
    """

    kind: ClassVar[str] = "deep"
    Options: ClassVar[type[Any]] = NoOptions
    title: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    advice: ClassVar[str] = "lower lr"
    needs_labels: ClassVar[bool] = True
    takes_texts: ClassVar[bool] = False

    def __init__(self, options: Any, n_bits: int, train_labels: Tensor) -> None:
        super().__init__()
        self.options = options
        self.n_bits = n_bits
        self.n_train = len(train_labels)

    @property
    def alpha(self) -> float | None:
        """The coefficient of the momentum copy that the loop is to keep, or None for no copy."""
        return None

    @property
    def copy_update(self) -> str:
        """When that copy takes up the network's weights: after each `step` or each `epoch`."""
        return "step"

    @property
    def shared_mask(self) -> bool:
        """Whether dropout gives that copy the network's masks instead of its own."""
        return False

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Make the steps that come before an epoch.

        `outputs()` computes the outputs (N, n_bits) of all training images; random numbers come from the generator.
        """
        del outputs, generator

    @abc.abstractmethod
    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms of the loss for the outputs (B, n_bits)."""

    def pair_weights(self, similarity: Tensor) -> Tensor:
        """Return the weight of every pair of a batch, in S's shape: by `similar_weight`, where the method has it."""
        return pair_weights(similarity, getattr(self.options, "similar_weight", 1.0))

    def target_codes(self, outputs: Tensor) -> Tensor:
        """Return the codes b (B, n_bits) that a quantisation term draws the outputs to: their signs."""
        return signs(outputs)

    def notes(self, outputs: Tensor, batch: TrainBatch) -> dict[str, float]:
        """Return what else is logged of a step with the outputs (B, n_bits), by name."""
        del outputs, batch
        return {}


def signs(outputs: Tensor) -> Tensor:
    """B = sign(u) with sign(0) = +1, as codes are made."""
    return torch.where(outputs >= 0, 1.0, -1.0).to(outputs.dtype)


def similarity_of(labels: Tensor, others: Tensor) -> Tensor:
    """S (B, N) of images with labels (B, classes) and others (N, classes): 1 where two share a label, else 0."""
    return (labels @ others.T > 0).float()


def negative_log_likelihood(outputs: Tensor, similarity: Tensor, others: Tensor | None = None) -> Tensor:
    """-log p(S_ij) = softplus(Θ_ij) - S_ij·Θ_ij with Θ_ij = ½·h_iᵀh_j, for every pair (B, B), or with others (B, N)."""
    theta = 0.5 * outputs @ (outputs if others is None else others).T
    return nn.functional.softplus(theta) - similarity * theta


def pair_weights(similarity: Tensor, similar_weight: float) -> Tensor:
    """Return the weight of every pair, in S's shape: similar ones count `similar_weight` times; the mean is 1."""
    weights = 1 + (similar_weight - 1) * similarity
    return weights / weights.mean()


def similar_weight_setting(default: float = 1.0) -> Any:
    """Declare how much more a similar pair counts than a dissimilar one."""
    return setting(default, "weight of a similar pair; a dissimilar one, of which there are more, has 1", above=0)


def beta_setting(default: float) -> Any:
    """Declare β, the weight of the quantisation term."""
    return setting(default, "weight of the quantisation term", low=0)


def normalization_setting() -> Any:
    """Declare how the sums of an objective over a batch are normalised."""
    return setting(
        "mean",
        "what the sums are divided by: mean, each by its number of elements; train, pairs by B², the others by N·B; "
        "pairs, all by B²",
        choices=NORMALIZATIONS,
    )


def scales(normalization: str, batch_size: int, n_bits: int, n_train: int) -> tuple[float, float]:
    """Return the factors on a sum over the batch's pairs and on a sum over its B × n_bits elements."""
    pairs = 1 / batch_size**2
    elements = {"mean": 1 / (batch_size * n_bits), "train": 1 / (n_train * batch_size), "pairs": pairs}
    return pairs, elements[normalization]
