"""Networks from the model file of a run."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.backbones import create_backbone
from dmuh.errors import FormatError, unknown
from dmuh.files import ArrayFile
from dmuh.network.hash_network import HashNetwork
from dmuh.network.heads import head_of
from dmuh.network.uncertainty import UNCERTAINTY_SOURCES, UncertaintySource

TEXTS = "text_"  # what the parts of the texts' network begin with in a model file


def load_networks(model: ArrayFile, device: torch.device | None = None) -> tuple[HashNetwork, UncertaintySource | None]:
    """Return the network of a run's model file and its source of uncertainty, on the CPU unless a device is given."""
    return _networks(model.metadata, state_by_part(model.arrays), device)


def load_text_networks(
    model: ArrayFile, device: torch.device | None = None
) -> tuple[HashNetwork, UncertaintySource | None]:
    """Return the same of the texts, for the model of a cross-modal method."""
    card, parts = model.metadata["texts"], state_by_part(model.arrays)
    vectors = {"backbone": f"features:{card['n_features']}", "image_size": None, "freeze": "all"}
    about = {**model.metadata, **vectors, "uncertainty": card["uncertainty"]}
    own = {part.removeprefix(TEXTS): state for part, state in parts.items() if part.startswith(TEXTS)}
    return _networks(about, own, device)


def _networks(
    about: Mapping[str, Any], parts: dict[str, dict[str, Tensor]], device: torch.device | None
) -> tuple[HashNetwork, UncertaintySource | None]:
    backbone = create_backbone(about["backbone"], about["image_size"])
    network = HashNetwork(backbone, about["n_bits"], about["freeze"])
    layer = "hash_layer."
    network.hash_layer = head_of({k.removeprefix(layer): v for k, v in parts["network"].items() if k.startswith(layer)})
    network.load_state_dict(parts["network"])
    network.to(device)
    # model files of earlier versions do not name the source: it is the copy where they hold one
    name = about.get("uncertainty", "copy" if "momentum" in parts else None)
    if name is None:
        return network, None
    if name not in UNCERTAINTY_SOURCES:
        raise FormatError(
            f"the model file cannot be used: {unknown('source of uncertainty', name, UNCERTAINTY_SOURCES)}"
        )
    return network, UNCERTAINTY_SOURCES[name].load(network, about, parts).to(network.device)


def state_by_part(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Tensor]]:
    """Return tensors from arrays named part.key: by part, then by key."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        part, _, key = name.partition(".")
        parts.setdefault(part, {})[key] = torch.from_numpy(array.copy())
    return parts
