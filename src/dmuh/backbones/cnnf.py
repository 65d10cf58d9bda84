"""cnnf: CNN-F, the paper's network (Chatfield et al. 2014), with MatConvNet's ImageNet weights.

    conv1  11×11/4, 64, normalised, pooled   64 × 27 × 27
    conv2  5×5, 256, normalised, pooled      256 × 13 × 13
    conv3  3×3, 256                          256 × 13 × 13
    conv4  3×3, 256                          256 × 13 × 13
    conv5  3×3, 256, pooled                  256 × 6 × 6
    full6, full7                             4096

full8 is the hash layer. The authors trained with dropout 0.5 after full6 and full7; after full7, `HashNetwork` has it.
MatConvNet pads its pools by one at the right and the bottom, as torch's ceil mode does, and does not divide the
normalisation's α by its window.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dmuh.backbones.base import Backbone
from dmuh.backbones.dropout import Dropout
from dmuh.errors import ConfigError, FormatError
from dmuh.images import Preprocess

_CONVOLUTIONS = ("conv1", "conv2", "conv3", "conv4", "conv5")
_LAYERS = (*_CONVOLUTIONS, "fc6", "fc7")  # by MatConvNet's names


class Centre(nn.Module):
    """Takes the mean image (3, 224, 224) of the images it was trained on from pixels 0…255."""

    mean_image: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean_image", torch.full((3, 224, 224), 127.5))

    def forward(self, images: Tensor) -> Tensor:
        """Take it off."""
        return images - self.mean_image


class CNNF(Backbone):
    """Pixels less the mean image, five convolutions and two full layers: features (B, 4096)."""

    about = "CNN-F, the paper's network; ImageNet weights by --set weights=imagenet-vgg-f.mat"
    n_features = 4096
    dropout = 0.5
    mean = (0.0, 0.0, 0.0)
    std = (1 / 255, 1 / 255, 1 / 255)  # pixels from 0 to 255

    def __init__(self, image_size: int | None = None) -> None:
        super().__init__(image_size)
        if image_size not in (None, 224):
            raise ConfigError(f"cnnf takes images of 224 pixels, got image_size={image_size}")
        self.preprocess = Preprocess(size=224, resize=256)
        self.centre = Centre()
        self.conv1 = nn.Conv2d(3, 64, 11, stride=4)
        self.conv2 = nn.Conv2d(64, 256, 5, padding=2)
        self.conv3 = nn.Conv2d(256, 256, 3, padding=1)
        self.conv4 = nn.Conv2d(256, 256, 3, padding=1)
        self.conv5 = nn.Conv2d(256, 256, 3, padding=1)
        self.fc6 = nn.Linear(256 * 6 * 6, 4096)
        self.drop6 = Dropout()
        self.fc7 = nn.Linear(4096, 4096)
        self.local_norm = nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)

    def parts(self) -> dict[str, nn.Module]:
        """Return the layers of the table above, from pixels 0…255 (B, 3, 224, 224)."""
        relu = nn.ReLU()
        return {
            "conv1": nn.Sequential(self.centre, self.conv1, relu, self.local_norm, self.pool),
            "conv2": nn.Sequential(self.conv2, relu, self.local_norm, self.pool),
            "conv3": nn.Sequential(self.conv3, relu),
            "conv4": nn.Sequential(self.conv4, relu),
            "conv5": nn.Sequential(self.conv5, relu, self.pool),
            "full6": nn.Sequential(nn.Flatten(), self.fc6, relu, self.drop6),
            "full7": nn.Sequential(self.fc7, relu),
        }

    def load_pretrained(self, file: Path | None = None) -> None:
        """Load MatConvNet's imagenet-vgg-f.mat; without a file the weights stay random."""
        if file is None:
            return
        self.load_state_dict(self.convert(file))
        self.from_scratch = False

    def convert(self, file: Path) -> dict[str, Tensor]:
        """Return the weights of a MatConvNet file by our names, in torch's order."""
        content = _read_mat(file)
        layers = {str(layer.get("name")): layer for layer in content["layers"]}
        missing = [name for name in _LAYERS if name not in layers]
        if missing:
            raise FormatError(f"{file} is not CNN-F of MatConvNet: it lacks {', '.join(missing)}")
        state: dict[str, Tensor] = {}
        for name in _LAYERS:
            filters, biases = _weights(layers[name], f"{file}: {name}")
            ours = getattr(self, name)
            # height × width × input × output → output × input × height × width; full layers are convolutions there
            weight = np.ascontiguousarray(filters.transpose(3, 2, 0, 1)).reshape(-1)
            if weight.size != ours.weight.numel() or biases.size != ours.bias.numel():
                shape = "×".join(map(str, filters.shape))
                raise FormatError(f"{file} is not CNN-F of MatConvNet: {name} has filters of {shape}")
            state[f"{name}.weight"] = torch.from_numpy(weight).view_as(ours.weight)
            state[f"{name}.bias"] = torch.from_numpy(biases.reshape(-1).copy())
        image = content["mean_image"]
        if image.shape not in ((224, 224, 3), (3,)):
            raise FormatError(f"{file} has a mean image of shape {image.shape}, expected 224 × 224 × 3")
        whole = np.broadcast_to(image, (224, 224, 3)).astype(np.float32)
        state["centre.mean_image"] = torch.from_numpy(np.ascontiguousarray(whole.transpose(2, 0, 1)))
        return state


def _read_mat(file: Path) -> dict[str, Any]:
    """Return the layers and the mean image of a MatConvNet model."""
    from scipy.io import loadmat

    if not file.is_file():
        raise FormatError(f"the weights {file} do not exist")
    try:
        content = loadmat(file, simplify_cells=True, chars_as_strings=True)
    except Exception as error:  # a broken file raises nearly anything
        raise FormatError(f"{file} is not a MATLAB file: {error}") from error
    about = content.get("meta", content)
    try:
        image = np.atleast_1d(np.asarray(about["normalization"]["averageImage"], np.float32))
        layers = list(content["layers"])
        if not all(isinstance(layer, dict) for layer in layers):
            raise TypeError
    except (KeyError, TypeError) as error:
        raise FormatError(f"{file} is not a MatConvNet model: it has no layers or no mean image") from error
    return {"layers": layers, "mean_image": image}


def _weights(layer: dict[str, Any], name: str) -> tuple[Any, Any]:
    """Return filters (4 dimensions) and biases of a layer, in the newer form (`weights`) or the older one."""
    try:
        filters, biases = layer["weights"] if "weights" in layer else (layer["filters"], layer["biases"])
        filters, biases = np.asarray(filters, np.float32), np.asarray(biases, np.float32)
    except (KeyError, ValueError, TypeError) as error:
        raise FormatError(f"{name} has no filters and biases") from error
    while filters.ndim < 4:  # MATLAB drops trailing dimensions of one
        filters = filters[..., None]
    return filters, biases
