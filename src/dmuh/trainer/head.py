"""A network with a frozen backbone trains as its head alone, on vectors that are computed once.

With `kernel` anchors the vectors are similarities to training images, decorrelated so that gradient descent sees no
direction a thousand times steeper than another. After the training that linear map is folded into the head.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dmuh.backbones import create_backbone
from dmuh.network import HashNetwork, MomentumCopy, calibrate_hash_layer
from dmuh.network.heads import KernelHead
from dmuh.protocols import Positions, Split
from dmuh.trainer.inputs import CachedInputs
from dmuh.trainer.measuring import spread

log = logging.getLogger(__name__)

_RIDGE = 0.1  # of the mean variance, added to each: directions that hardly vary are not blown up to the rest


@dataclass(frozen=True)
class Anchored:
    """Similarities to anchors, less their mean, times a matrix (n_anchors, n_anchors)."""

    kernel: KernelHead  # without its weight
    mean: Tensor
    matrix: Tensor

    @classmethod
    def fit(cls, features: Tensor, n_anchors: int) -> "Anchored":
        """Put anchors at some of the features (n, n_features) and decorrelate the similarities to them."""
        n_anchors = min(n_anchors, len(features))
        kernel = KernelHead(features.shape[1], 0, n_anchors).to(features.device)
        kernel.place_anchors(features[torch.linspace(0, len(features) - 1, n_anchors).long()])
        similar = kernel.similarities(features)
        mean = similar.mean(dim=0)
        centred = similar - mean
        covariance = (centred.T @ centred).double() / len(centred)
        ridge = _RIDGE * covariance.diagonal().mean()
        one = torch.eye(n_anchors, dtype=torch.float64, device=features.device)
        factor = torch.linalg.cholesky(covariance + ridge * one)
        matrix = torch.linalg.solve_triangular(factor, one, upper=False).T
        # the mean variance of the vectors is tr(C·(C + ridge)⁻¹) / n_anchors, and tr((C + ridge)⁻¹) is ‖matrix‖²
        variance = 1 - ridge * (matrix**2).mean() * n_anchors
        return cls(kernel, mean, (matrix / variance.sqrt()).float())

    def __call__(self, features: Tensor) -> Tensor:
        """Compute the vectors (B, n_anchors) of features (B, n_features)."""
        return (self.kernel.similarities(features) - self.mean) @ self.matrix

    def folded(self, layer: nn.Linear) -> KernelHead:
        """Return the head that computes layer(self(x)) from the features x."""
        head = KernelHead(self.kernel.anchors.shape[1], layer.out_features, len(self.kernel.anchors))
        head.to(self.mean.device)
        head.anchors.copy_(self.kernel.anchors)
        head.width.copy_(self.kernel.width)
        head.weight.copy_(self.matrix @ layer.weight.T)
        head.bias.copy_(layer.bias - self.mean @ head.weight)
        return head


@dataclass(frozen=True)
class _Anchoring:
    """What anchors among the training images at `train` made of the features."""

    features: CachedInputs
    train: Positions
    n_anchors: int
    anchored: Anchored
    vectors: CachedInputs


_KEPT = 2  # of images and of texts
_last: list[_Anchoring] = []


def anchor(features: CachedInputs, train: Positions, n_anchors: int) -> tuple[Anchored, CachedInputs]:
    """Return `Anchored.fit` of the training images' features and the vectors of all features.

    Or what it gave last: it takes seconds, and a bench has many runs on one split.
    """
    for last in _last:
        if last.n_anchors == n_anchors and np.array_equal(last.train, train) and last.features == features:
            return last.anchored, last.vectors
    del _last[: len(_last) - _KEPT + 1]
    anchored = Anchored.fit(next(iter(features.batches([train]))).activations, n_anchors)
    last = _Anchoring(features, train, n_anchors, anchored, features.mapped(anchored))
    _last.append(last)
    return last.anchored, last.vectors


class FrozenNetwork:
    """A network of which only the head trains: `head` is the network that trains, `inputs` what goes into it."""

    def __init__(
        self, network: HashNetwork, inputs: CachedInputs, split: Split, kernel: int, standardize: bool = True
    ) -> None:
        positions = np.union1d(split.train, split.validation)
        self._network = network
        self._anchored: Anchored | None = None
        self.inputs = inputs.mapped(network.head_inputs, positions)
        width = network.backbone.n_features
        if kernel:
            self._anchored, self.inputs = anchor(self.inputs, split.train, kernel)
            width = len(self._anchored.mean)
        vectors = create_backbone(f"features:{width}")
        self.head = HashNetwork(vectors, network.n_bits, "all", dropout=network.dropout).to(network.device)
        if kernel and standardize:
            some = next(iter(self.inputs.batches([spread(split.train, 1024)]))).activations
            calibrate_hash_layer(self.head, some)
        elif not kernel:
            self.head.hash_layer, self.head.drop = network.hash_layer, network.drop  # made, and calibrated if asked for

    @property
    def n_anchors(self) -> int:
        """Training images that features are compared with: as many as there are, where fewer than the setting."""
        return 0 if self._anchored is None else len(self._anchored.mean)

    def warn_of_fewer(self, kernel: int, what: str) -> None:
        """Say so where there are fewer anchors than the setting `kernel` asks for, as there is less of `what`."""
        if self.n_anchors < kernel:
            log.warning("kernel %s is more than there are %s: it became %s", f"{kernel:,}", what, f"{self.n_anchors:,}")

    @torch.no_grad()
    def finish(self, copy: MomentumCopy | None) -> MomentumCopy | None:
        """Give the network the trained head; return the network's copy, with the head of `copy`, the head's copy."""
        self._network.hash_layer = self._whole(self.head)
        if copy is None:
            return None
        whole_copy = MomentumCopy(self._network, copy.alpha)
        whole_copy.network.hash_layer = self._whole(copy.network)
        return whole_copy

    def _whole(self, head: HashNetwork) -> nn.Module:
        layer = head.hash_layer
        if self._anchored is None:
            return layer
        assert isinstance(layer, nn.Linear), "anchors have a linear head"
        return self._anchored.folded(layer)
