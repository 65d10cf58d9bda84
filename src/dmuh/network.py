"""HashNetwork, its momentum copy, and where they run."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmuh.backbones import Backbone, create_backbone
from dmuh.errors import ConfigError, unknown
from dmuh.files import ArrayFile
from dmuh.heads import KernelHead, head_of

_BATCH = 64  # rows that a GPU encodes together
_SHARED_DEVIATION = 0.3  # of the mean one, added to each feature's: those that hardly vary are not blown up to the rest
_FIRST_DEVIATION = 0.2  # of a bit's output over the training images when training begins


class HashNetwork(nn.Module):
    """Pixels uint8 (B, size, size, 3) → outputs (B, n_bits), whose signs are the code: a backbone and a hash layer.

    The hash layer is linear, unless a shallow method put its own head there (`dmuh.heads`).

    `freeze` cuts it in two: the parts of the backbone up to the one it names, or all or none of them, do not train.
    They are `lower`, from pixels to activations; `upper` goes on from there. What lower gives can be kept. Before the
    hash layer the features are shifted and scaled by constants, which `calibrate` sets.

    The network never leaves evaluation mode: batch normalisation uses its running statistics and dropout is off, in
    training too. So the momentum copy differs from it by its weights alone, a code never depends on its batch, and the
    uncertainty |h - m| measures change and nothing else.
    """

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(self, backbone: Backbone, n_bits: int, freeze: str = "none") -> None:
        super().__init__()
        self.backbone = backbone
        self.n_bits = n_bits
        self.hash_layer: nn.Module = nn.Linear(backbone.n_features, n_bits)
        self.register_buffer("feature_mean", torch.zeros(backbone.n_features))
        self.register_buffer("feature_scale", torch.ones(backbone.n_features))
        names = list(backbone.parts())
        if freeze not in ("none", "all", *names):
            raise ConfigError(unknown("part to freeze", freeze, ["none", "all", *names]))
        self._n_frozen = ["none", *names].index(freeze) if freeze != "all" else len(names)
        for part in list(backbone.parts().values())[: self._n_frozen]:
            part.requires_grad_(False)
        # convolutions train up to five times as fast on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()

    def train(self, mode: bool = True) -> "HashNetwork":
        """Stay in evaluation mode, whatever is asked for."""
        del mode
        super().train(False)
        return self

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.feature_mean.device

    @torch.no_grad()
    def lower(self, pixels: Tensor) -> Tensor:
        """Compute the activations above what is frozen: with nothing frozen, the normalised images."""
        x = self.backbone.normalise(pixels)
        for part in list(self.backbone.parts().values())[: self._n_frozen]:
            x = part(x)
        return x

    def features(self, activations: Tensor) -> Tensor:
        """Compute the backbone's features (B, n_features) from the activations."""
        x = activations
        for part in list(self.backbone.parts().values())[self._n_frozen :]:
            x = part(x)
        return x

    def head_inputs(self, activations: Tensor) -> Tensor:
        """Compute what the hash layer sees: the features, shifted and scaled."""
        return (self.features(activations) - self.feature_mean) * self.feature_scale

    def upper(self, activations: Tensor) -> Tensor:
        """Compute the outputs (B, n_bits) from the activations."""
        outputs: Tensor = self.hash_layer(self.head_inputs(activations))
        return outputs

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the outputs (B, n_bits)."""
        return self.upper(self.lower(pixels))

    def frozen(self) -> list[Tensor]:
        """Return the weights and buffers that do not change in training."""
        parts = list(self.backbone.parts().values())[: self._n_frozen]
        return [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())]

    def trained_state(self) -> dict[str, Tensor]:
        """Return the state without what is frozen."""
        frozen = {id(tensor) for tensor in self.frozen()}
        return {key: value for key, value in self.state_dict(keep_vars=True).items() if id(value) not in frozen}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what `trained_state` gave."""
        self.load_state_dict({**self.state_dict(), **state})


@torch.no_grad()
def calibrate(network: HashNetwork, activations: Tensor) -> None:
    """Scale a fresh network's layers so that over these activations of `lower` no output has a mean.

    Layers of a backbone that starts from scratch get deviation 1 a channel, the hash layer a small one. The features of
    a learned backbone are standardised instead: their deviations differ a thousandfold, and so would the speed at which
    the hash layer learns to use them. A fresh hash layer gives all images nearly the same output, from where the
    pairwise likelihood drives the outputs to zero: a saddle point that training does not leave.
    """
    deviation: dict[nn.Module, float] = {network.hash_layer: _FIRST_DEVIATION}
    if network.backbone.from_scratch:
        deviation |= {m: 1.0 for m in network.backbone.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    else:
        features = network.features(activations)
        network.feature_mean.copy_(features.mean(dim=0))
        deviations = features.std(dim=0, correction=0)
        network.feature_scale.copy_(1 / (deviations + _SHARED_DEVIATION * deviations.mean() + 1e-6))
    _set_deviations(network, activations, deviation)


@torch.no_grad()
def calibrate_hash_layer(network: HashNetwork, activations: Tensor) -> None:
    """Scale a fresh network's hash layer alone, as `calibrate` does."""
    _set_deviations(network, activations, {network.hash_layer: _FIRST_DEVIATION})


def _set_deviations(network: HashNetwork, activations: Tensor, deviation: dict[nn.Module, float]) -> None:
    """Scale these layers, one after the other, so that their outputs have no mean and the deviation that is named."""

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
    network.upper(activations)
    for hook in hooks:
        hook.remove()


class MomentumCopy(nn.Module):
    """The momentum-updated network (Eq. 3): a copy whose weights follow another network's, smoothed by `alpha`.

    What is frozen is the network's own, not copied.
    """

    def __init__(self, network: HashNetwork, alpha: float) -> None:
        super().__init__()
        shared = {id(tensor): tensor for tensor in network.frozen()}
        self.network = copy.deepcopy(network, shared).requires_grad_(False)
        self.alpha = alpha
        self._followed: tuple[HashNetwork, list[tuple[Tensor, Tensor]]] | None = None

    @torch.no_grad()
    def update(self, network: HashNetwork) -> None:
        """θ_m ← α·θ_m + (1-α)·θ_h. Buffers, such as running statistics, are copied."""
        if (
            self._followed is None or self._followed[0] is not network
        ):  # to look all weights up takes longer than a step
            theirs = network.trained_state()
            pairs = [(ours, theirs[key]) for key, ours in self.network.trained_state().items()]
            self._followed = network, pairs
        for ours, their in self._followed[1]:
            if isinstance(their, nn.Parameter):
                ours.lerp_(their, 1 - self.alpha)
            else:
                ours.copy_(their)

    @torch.no_grad()
    def exchange(self, network: HashNetwork) -> None:
        """Give the network the copy's weights, and the copy the network's."""
        theirs = network.trained_state()
        for key, ours in self.network.trained_state().items():
            kept = ours.clone()
            ours.copy_(theirs[key])
            theirs[key].copy_(kept)

    @torch.no_grad()
    def upper(self, activations: Tensor) -> Tensor:
        """Compute the copy's outputs (B, n_bits), without gradient."""
        return self.network.upper(activations)


class Margin:
    """Uncertainty without a copy: how near an output is to 0, where its bit turns over."""

    def of(self, outputs: Tensor) -> Tensor:
        """Return 1 / (1 + |h|): 1 for a bit that is undecided, less the farther its output is from that."""
        return 1 / (1 + outputs.abs())


Doubt = MomentumCopy | Margin  # what codes get their uncertainty from


def outputs_and_uncertainty(
    network: HashNetwork, doubt: Doubt | None, activations: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs (B, n_bits) from the activations, and how far the copy's are from them (Eq. 4), or from 0."""
    if doubt is None:
        return network.upper(activations), None
    if isinstance(doubt, Margin):
        outputs = network.upper(activations)
        return outputs, doubt.of(outputs)
    own, copied = network.hash_layer, doubt.network.hash_layer
    if isinstance(own, KernelHead) and isinstance(copied, KernelHead):  # all below their weights is frozen, so the same
        similar = own.similarities(network.head_inputs(activations))
        outputs, others = own.of_similarities(similar), copied.of_similarities(similar)
    else:
        outputs, others = network.upper(activations), doubt.upper(activations)
    return outputs, (outputs - others).abs()


class TorchNetwork:
    """A network and its copy on a GPU, run as `dmuh.encoder.onnx_network.OnnxNetwork` runs them on a CPU."""

    def __init__(self, network: HashNetwork, doubt: Doubt | None) -> None:
        self._network = network
        self._doubt = doubt
        self.shape = tuple(network.backbone.example().shape[1:])
        self.outputs = ["outputs"] if doubt is None else ["outputs", "uncertainty"]

    @torch.inference_mode()
    def run(self, rows: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        """Return what each row (n, …) gives: always in batches of one size, so that it does not depend on theirs."""
        parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in self.outputs}
        for first in range(0, len(rows), _BATCH):
            own = rows[first : first + _BATCH]
            whole = np.concatenate([own, np.zeros((_BATCH - len(own), *own.shape[1:]), own.dtype)])
            activations = self._network.lower(to_device(whole, self._network.device))
            values = outputs_and_uncertainty(self._network, self._doubt, activations)
            for name, value in zip(self.outputs, values, strict=False):
                assert value is not None, "there is an uncertainty where there is doubt"
                parts[name].append(value[: len(own)].float().cpu().numpy())
        return {name: np.concatenate(values) for name, values in parts.items()}


def load_networks(model: ArrayFile, device: torch.device | None = None) -> tuple[HashNetwork, Doubt | None]:
    """Return what a run's model file holds, on the CPU unless a device is given."""
    about = model.metadata
    backbone = create_backbone(about["backbone"], about["image_size"])
    network = HashNetwork(backbone, about["n_bits"], about["freeze"])
    parts = state_by_part(model.arrays)
    layer = "hash_layer."
    network.hash_layer = head_of({k.removeprefix(layer): v for k, v in parts["network"].items() if k.startswith(layer)})
    network.load_state_dict(parts["network"])
    network.to(device)
    if about.get("uncertainty") == "margin":
        return network, Margin()
    if "momentum" not in parts:
        return network, None
    momentum = MomentumCopy(network, about["alpha"])
    momentum.network.load_trained_state(parts["momentum"])
    return network, momentum


def state_by_part(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Tensor]]:
    """Return tensors from arrays named part.key: by part, then by key."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        part, _, key = name.partition(".")
        parts.setdefault(part, {})[key] = torch.from_numpy(array.copy())
    return parts


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Move an array to the device, maps (n, channels, height, width) with the channels last in memory.

    Where it is a GPU the memory is pinned and nobody waits.
    """
    tensor = torch.from_numpy(array)
    if tensor.ndim == 4 and tensor.is_floating_point():
        tensor = tensor.contiguous(memory_format=torch.channels_last)
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
