"""Where a network runs, and how it runs there to encode."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.errors import ConfigError
from dmuh.network.hash_network import HashNetwork
from dmuh.network.uncertainty import Doubt, outputs_and_uncertainty

_BATCH = 64  # rows that a GPU encodes together


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
