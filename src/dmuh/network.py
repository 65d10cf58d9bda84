"""HashNetwork, its momentum copy, and the pass over images that both share."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmuh.backbones import Backbone
from dmuh.errors import ConfigError
from dmuh.images import BadImages, Images, OnBadImage, read_batches

_FIRST_DEVIATION = 0.2  # of a bit's output over the training images when training begins


class HashNetwork(nn.Module):
    """Pixels uint8 (B, size, size, 3) → outputs (B, n_bits), whose signs are the code: a backbone and a hash layer.

    The network never leaves evaluation mode: batch normalisation uses its running statistics and dropout is off, in
    training too. So the momentum copy differs from it by its weights alone, a code never depends on its batch, and the
    uncertainty |h - m| measures change and nothing else.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, n_bits: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.hash_layer = nn.Linear(backbone.n_features, n_bits)
        self.register_buffer("mean", torch.tensor(backbone.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(backbone.std).view(1, 3, 1, 1), persistent=False)
        self.eval()

    def train(self, mode: bool = True) -> "HashNetwork":
        """Stay in evaluation mode, whatever is asked for."""
        del mode
        super().train(False)
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the outputs (B, n_bits)."""
        images = pixels.permute(0, 3, 1, 2).to(self.mean.dtype) / 255
        features = self.backbone((images - self.mean) / self.std)
        outputs: Tensor = self.hash_layer(features)
        return outputs


@torch.no_grad()
def calibrate(network: HashNetwork, pixels: Tensor) -> None:
    """Scale a fresh network's layers so that over these images (n, size, size, 3) no output has a mean.

    Layers of a backbone that starts from scratch get deviation 1 a channel, the hash layer a small one. A fresh hash
    layer gives all images nearly the same output, from where the pairwise likelihood drives the outputs to zero: a
    saddle point that training does not leave.
    """
    deviation: dict[nn.Module, float] = {network.hash_layer: _FIRST_DEVIATION}
    if network.backbone.from_scratch:
        deviation |= {m: 1.0 for m in network.backbone.modules() if isinstance(m, nn.Linear | nn.Conv2d)}

    def standardise(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        del inputs
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        channel_last = output.movedim(1, -1)
        flat = channel_last.reshape(-1, channel_last.shape[-1])
        mean, scale = flat.mean(dim=0), deviation[layer] / (flat.std(dim=0, correction=0) + 1e-6)
        layer.weight.mul_(scale.view(-1, *[1] * (layer.weight.ndim - 1)))
        if layer.bias is not None:
            layer.bias.sub_(mean).mul_(scale)
        return ((channel_last - mean) * scale).movedim(-1, 1)

    hooks = [layer.register_forward_hook(standardise) for layer in deviation]
    network(pixels)
    for hook in hooks:
        hook.remove()


class MomentumCopy(nn.Module):
    """The momentum-updated network (Eq. 3): a copy whose weights follow another network's, smoothed by `alpha`."""

    def __init__(self, network: HashNetwork, alpha: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.alpha = alpha

    @torch.no_grad()
    def update(self, network: HashNetwork) -> None:
        """θ_m ← α·θ_m + (1-α)·θ_h. Buffers, such as running statistics, are copied."""
        for ours, theirs in zip(self.network.parameters(), network.parameters(), strict=True):
            ours.lerp_(theirs, 1 - self.alpha)
        for our_buffer, their_buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            our_buffer.copy_(their_buffer)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the copy's outputs (B, n_bits), without gradient."""
        outputs: Tensor = self.network(pixels)
        return outputs


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs float32 (n, n_bits) of the images at `positions` (n,), and their uncertainty if there is a copy."""

    positions: NDArray[np.int64]
    outputs: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None


@torch.inference_mode()
def compute_outputs(
    network: HashNetwork,
    momentum: MomentumCopy | None,
    images: Images,
    positions: NDArray[np.int64],
    *,
    batch_size: int = 128,
    on_bad_image: OnBadImage = "fail",
    bad: BadImages | None = None,
    workers: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outputs:
    """Run the images at `positions` through the network and its copy; `progress` is told the images done by batch."""
    device = network.mean.device
    batches = [positions[i : i + batch_size] for i in range(0, len(positions), batch_size)]
    n_bits = network.hash_layer.out_features
    outputs = np.empty((len(positions), n_bits), np.float32)
    unsure = None if momentum is None else np.empty((len(positions), n_bits), np.float32)
    kept: list[NDArray[np.int64]] = []
    n = 0
    reader = read_batches(
        images, batches, network.backbone.preprocess, on_bad_image=on_bad_image, bad=bad, workers=workers
    )
    for batch, asked in zip(reader, batches, strict=True):
        rows = slice(n, n + len(batch.positions))
        if len(batch.positions):
            pixels = to_device(batch.pixels, device)
            h = network(pixels)
            outputs[rows] = h.float().cpu().numpy()
            if momentum is not None and unsure is not None:
                unsure[rows] = (h - momentum(pixels)).abs().float().cpu().numpy()
            kept.append(batch.positions)
        n = rows.stop
        if progress is not None:
            progress(len(asked))
    return Outputs(np.concatenate([positions[:0], *kept]), outputs[:n], None if unsure is None else unsure[:n])


def state_by_part(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Tensor]]:
    """Return tensors from arrays named part.key: by part, then by key."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        part, _, key = name.partition(".")
        parts.setdefault(part, {})[key] = torch.from_numpy(array.copy())
    return parts


def to_device(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """Move pixels to the device: pinned and without waiting where it is a GPU."""
    tensor = torch.from_numpy(pixels)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def choose_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name} is not there: this machine has {torch.cuda.device_count()} GPUs for torch")
    return device
