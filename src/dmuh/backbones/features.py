"""features: no network at all, for people who bring embeddings and want codes for them."""

import torch
from torch import Tensor, nn

from dmuh.backbones.base import Backbone
from dmuh.errors import InputError
from dmuh.images import Preprocess


class Features(Backbone):
    """Feature vectors (B, n_features), as they come."""

    about = "feature vectors of your own, with --dataset features"
    freeze = "all"
    from_scratch = False

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features

    @property
    def preprocess(self) -> Preprocess:  # type: ignore[override]
        """There is none: images cannot be encoded."""
        raise InputError(f"this network takes feature vectors of {self.n_features} numbers, not images")

    def normalise(self, pixels: Tensor) -> Tensor:
        """Return the vectors as they are."""
        return pixels

    def example(self) -> Tensor:
        """Return one vector of zeros."""
        return torch.zeros(1, self.n_features)

    def parts(self) -> dict[str, nn.Module]:
        """Return nothing."""
        return {}
