"""What a cross-modal method is: it learns one Hamming space for images and for the texts about them.

There are two networks, one for images and one for texts, which the loop trains as one: their outputs for a pair stand
side by side, (B, 2·n_bits), the image's first. A deep method of this kind is an `Objective` with `takes_texts`; a
shallow one is fitted to both features at once.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dmuh.config import setting
from dmuh.errors import InputError
from dmuh.methods.base import Objective, TrainBatch


def views(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of images and of texts (B, n_bits) each, from both side by side (B, 2·n_bits)."""
    image, text = outputs.chunk(2, dim=1)
    return image, text


def stacked(outputs: Tensor) -> Tensor:
    """Return outputs that stand side by side (B, 2·n_bits) one below the other: (2·B, n_bits), the images first."""
    return torch.cat(views(outputs))


def within_setting() -> Any:
    """Declare how much pairs of two images, or of two texts, count beside those of an image and a text."""
    return setting(1.0, "weight of a pair of two images or two texts; one of an image and a text has 1", low=0)


class Stacked(Objective):
    """A method for images, whose objective is taken over the images and the texts of a batch alike.

    A text is one more item with the labels of its image. What the method sums over the pairs of a batch, it sums over
    the four blocks image–image, image–text, text–image and text–text; what it sums over images, over texts too; what it
    keeps of the N training images, of N images and N texts. The option `within` weighs pairs of two images or two texts
    beside those of an image and a text.
    """

    takes_texts: ClassVar[bool] = True

    def __init__(self, options: Any, n_bits: int, train_labels: Tensor) -> None:
        super().__init__(options, n_bits, torch.cat([train_labels, train_labels]))

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Make the method's steps before an epoch, on the outputs of images and texts."""
        super().begin_epoch(lambda: stacked(outputs()), generator)

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the method's terms for outputs (B, 2·n_bits)."""
        return super().forward(stacked(outputs), self._stacked(batch))  # type: ignore[safe-super]

    def pair_weights(self, similarity: Tensor) -> Tensor:
        """Return the method's weights (2·B, 2·B), those of image–image and text–text pairs times `within`; mean 1."""
        weights = super().pair_weights(similarity)
        half = len(similarity) // 2
        own = torch.arange(len(similarity), device=similarity.device) < half
        weights = torch.where(own[:, None] == own[None, :], self.options.within * weights, weights)
        return weights / weights.mean()

    def notes(self, outputs: Tensor, batch: TrainBatch) -> dict[str, float]:
        """Return the method's notes for outputs (B, 2·n_bits)."""
        return super().notes(stacked(outputs), self._stacked(batch))

    def _stacked(self, batch: TrainBatch) -> TrainBatch:
        copied = batch.momentum_outputs
        return TrainBatch(
            torch.cat([batch.labels, batch.labels]),
            torch.cat([batch.index, batch.index + self.n_train // 2]),
            None if copied is None else stacked(copied),
        )


class OneCode(Stacked):
    """A method of this kind that draws an image and its text to one code, b_i = sign(h^x_i + h^y_i), as DCMH does."""

    def target_codes(self, outputs: Tensor) -> Tensor:
        """Return the code of each pair, once for its image and once for its text: (2·B, n_bits)."""
        image, text = outputs.chunk(2)
        return super().target_codes(image + text).repeat(2, 1)


class ShallowCrossModal(abc.ABC):
    """A method that is fitted in one go to the features of images and of their texts.

    Options, title, paper, year, defaults and presets are as those of a deep method. `fit` leaves `image_head_` and
    `text_head_`, linear layers from features to outputs (n, n_bits), whose signs are the codes.
    """

    kind: ClassVar[str] = "shallow"
    takes_texts: ClassVar[bool] = True
    Options: ClassVar[type[Any]]
    title: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    needs_labels: ClassVar[bool] = True

    image_head_: nn.Linear
    text_head_: nn.Linear

    def __init__(self, options: Any, n_bits: int, seed: int) -> None:
        self.options = options
        self.n_bits = n_bits
        self.seed = seed

    @classmethod
    def of(cls, options: Any, n_bits: int, seed: int) -> "ShallowCrossModal":
        """Make one from the options of a configuration."""
        return cls(options, n_bits, seed)

    def fit(self, images: Tensor, texts: Tensor, labels: Tensor | None) -> "ShallowCrossModal":
        """Learn from features of N images and of one text each, and 0/1 labels (N, classes)."""
        least = min(images.shape[1], texts.shape[1])
        if self.n_bits > least:
            raise InputError(
                f"{type(self).__name__} gives at most as many bits as there are features, of images "
                f"{images.shape[1]} and of texts {texts.shape[1]}, got {self.n_bits} bits"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._fit(images, texts, labels)
        return self

    @abc.abstractmethod
    def _fit(self, images: Tensor, texts: Tensor, labels: Tensor | None) -> None:
        """Set the two heads."""


@dataclasses.dataclass(frozen=True)
class Standardised:
    """Features (N, n_features) less their mean, over their deviation; and how a map of these becomes a head."""

    rows: Tensor  # float64 (N, n_features)
    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, features: Tensor) -> "Standardised":
        """Standardise features."""
        x = features.double()
        mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0) + 1e-6
        return cls((x - mean) / deviation, mean, deviation)

    def covariance(self, ridge: float) -> Tensor:
        """Return the covariance (n_features, n_features) with `ridge` added to each variance, which are about 1."""
        width = self.rows.shape[1]
        return self.rows.T @ self.rows / len(self.rows) + ridge * torch.eye(width, dtype=torch.float64)

    def head(self, weight: Tensor) -> nn.Linear:
        """Return the layer that computes rows @ weight (n_features, n_bits) from the features as they were."""
        own = weight / self.deviation[:, None]
        head = nn.Linear(weight.shape[0], weight.shape[1])
        with torch.no_grad():
            head.weight.copy_(own.T)
            head.bias.copy_(-self.mean @ own)
        return head.requires_grad_(False)
