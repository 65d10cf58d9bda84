"""smallconv: a small convolutional network for images of 28 to 64 pixels, trained from scratch in minutes on a CPU.

It has no normalisation layers, whose statistics depend on the batch. Instead nothing in it has a mean: weights are
centred, activations too. Where means pass through, the pairwise likelihood (nine of ten pairs are dissimilar) pushes
hardest on what all images have in common, and only a tiny learning rate is stable.
"""

from torch import Tensor, nn

from dmuh.backbones.base import Backbone
from dmuh.images import Preprocess


class CentredConv2d(nn.Conv2d):
    """A convolution whose filters have mean 0."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Convolve with the centred filters."""
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        return nn.functional.conv2d(input, weight, self.bias, self.stride, self.padding)


class CentredLinear(nn.Linear):
    """A linear layer whose rows have mean 0."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Multiply by the centred rows."""
        weight = self.weight - self.weight.mean(dim=1, keepdim=True)
        return nn.functional.linear(input, weight, self.bias)


class CentredReLU(nn.Module):
    """ReLU, shifted and scaled so that a standard normal input gives mean 0 and deviation 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return (nn.functional.relu(x) - 0.3989) / 0.5838


class SmallConv(Backbone):
    """Three convolutions with pooling, one hidden layer of 256."""

    about = "small convolutional network for images of 28 to 64 pixels, trained from scratch"
    n_features = 256

    def __init__(self, image_size: int | None = None) -> None:
        super().__init__(image_size)
        size = image_size or 32
        self.preprocess = Preprocess(size=size, resize=round(size * 9 / 8))
        channels = [3, 32, 64, 128]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(CentredConv2d(before, after, kernel, padding=kernel // 2), nn.MaxPool2d(2), CentredReLU())
                for before, after, kernel in zip(channels[:-1], channels[1:], [5, 3, 3], strict=True)
            )
        )
        self.hidden = nn.Sequential(
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), CentredLinear(channels[-1] * 16, self.n_features), CentredReLU()
        )

    def parts(self) -> dict[str, nn.Module]:
        """Return conv1, conv2, conv3, whose maps are (B, 128, size/8, size/8) at the end, and hidden (B, 256)."""
        return {f"conv{n}": stage for n, stage in enumerate(self.stages, start=1)} | {"hidden": self.hidden}
