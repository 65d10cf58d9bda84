"""Where a network runs, and how it runs there to encode."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.errors import ConfigError
from dmuh.network.hash_network import HashNetwork
from dmuh.network.uncertainty import UncertaintySource, outputs_and_uncertainty

_BATCH = 64  # rows that a GPU encodes together


class TorchNetwork:
    """A network and its source of uncertainty on a GPU, run as `dmuh.encoder.onnx_network` runs them on a CPU."""

    def __init__(self, network: HashNetwork, source: UncertaintySource | None) -> None:
        self._network = network
        self._source = source
        self.shape = tuple(network.backbone.example().shape[1:])
        self.outputs = ["outputs"] if source is None else ["outputs", "uncertainty"]

    @torch.inference_mode()
    def run(self, rows: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        """Return each named output (n, n_bits) of rows (n, …), in batches of one size so that none depends on n."""
        parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in self.outputs}
        for first in range(0, len(rows), _BATCH):
            batch = rows[first : first + _BATCH]
            padded = np.concatenate([batch, np.zeros((_BATCH - len(batch), *batch.shape[1:]), batch.dtype)])
            activations = self._network.lower(to_device(padded, self._network.device))
            values = outputs_and_uncertainty(self._network, self._source, activations)
            for name, value in zip(self.outputs, values, strict=False):
                assert value is not None, "there is an uncertainty where it has a source"
                parts[name].append(value[: len(batch)].float().cpu().numpy())
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
