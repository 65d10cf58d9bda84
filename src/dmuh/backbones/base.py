"""Backbone: the part of a network that turns pixels into features."""

import abc
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from dmuh.errors import ConfigError
from dmuh.images import Preprocess


class Backbone(nn.Module, abc.ABC):
    """Normalised images (B, 3, size, size) → features (B, n_features).

    about        one line for `dmuh list`
    n_features   width of the output
    preprocess   the geometry it wants its images in
    from_scratch whether its weights are random at first, rather than learned elsewhere
    mean, std    per channel, of pixels in 0…1: what its input is normalised by
    """

    about: ClassVar[str]
    n_features: int
    preprocess: Preprocess
    from_scratch: bool = True
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    @abc.abstractmethod
    def __init__(self, image_size: int | None = None) -> None:
        super().__init__()

    def load_pretrained(self, file: Path | None = None) -> None:
        """Take up weights that were learned elsewhere: the backbone's own, or those of a file where it reads one."""
        if file is not None:
            raise ConfigError(f"{type(self).__name__} takes no file of weights, got {file}")

    @abc.abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Compute the features."""
