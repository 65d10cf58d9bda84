"""Networks from the model file of a run."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.backbones import create_backbone
from dmuh.files import ArrayFile
from dmuh.network.hash_network import HashNetwork
from dmuh.network.heads import head_of
from dmuh.network.momentum import MomentumCopy
from dmuh.network.uncertainty import Doubt, Margin


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
