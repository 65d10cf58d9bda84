"""Backbone: the part of a network that turns pixels into features."""

import abc
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from dmuh.errors import ConfigError
from dmuh.images import Preprocess


class Backbone(nn.Module, abc.ABC):
    """Normalised images (B, 3, size, size) → features (B, n_features).

    about         one line for `dmuh list`
    n_features    width of the output
    preprocess    the geometry it wants its images in
    from_scratch  whether its weights are random at first, rather than learned elsewhere
    freeze        what of it does not train unless the settings say otherwise: all, none or a part
    augment       how its training images are changed, where it trains on pixels and the settings do not say
    mean, std     per channel, of pixels in 0…1: what its input is normalised by
    dropout       share of its features that its authors drop in training, below their last layer; 0 for none
    """

    about: ClassVar[str]
    freeze: ClassVar[str] = "none"
    augment: ClassVar[str] = "crop"
    dropout: ClassVar[float] = 0.0
    n_features: int
    preprocess: Preprocess
    from_scratch: bool = True
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    pixel_mean: Tensor
    pixel_std: Tensor

    @abc.abstractmethod
    def __init__(self, image_size: int | None = None) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.tensor(self.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(self.std).view(1, 3, 1, 1), persistent=False)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Return images (B, 3, size, size) as `forward` wants them from pixels uint8 (B, size, size, 3)."""
        return (pixels.permute(0, 3, 1, 2).to(self.pixel_mean.dtype) / 255 - self.pixel_mean) / self.pixel_std

    def example(self) -> Tensor:
        """Return what `normalise` takes, for one image, black."""
        return torch.zeros(1, self.preprocess.size, self.preprocess.size, 3, dtype=torch.uint8)

    def load_pretrained(self, file: Path | None = None) -> None:
        """Load weights that were learned elsewhere: those that come with the backbone, or of a file if it reads one."""
        if file is not None:
            raise ConfigError(f"{type(self).__name__} takes no file of weights, got {file}")

    @abc.abstractmethod
    def parts(self) -> dict[str, nn.Module]:
        """Return its parts by name, from the pixels up: each takes what the one before it gives."""

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features."""
        for part in self.parts().values():
            images = part(images)
        return images
