"""The hashing network, its heads, its momentum copy, and where the uncertainty of codes comes from."""

from dmuh.network.device import TorchNetwork, choose_device, to_device
from dmuh.network.hash_network import HashNetwork, calibrate, calibrate_hash_layer
from dmuh.network.loading import TEXTS, load_networks, load_text_networks, state_by_part
from dmuh.network.uncertainty import (
    UNCERTAINTY_SOURCES,
    Classes,
    Examples,
    Margin,
    MomentumCopy,
    Trained,
    UncertaintySource,
    outputs_and_uncertainty,
)

__all__ = [
    "TEXTS",
    "UNCERTAINTY_SOURCES",
    "Classes",
    "Examples",
    "HashNetwork",
    "Margin",
    "MomentumCopy",
    "TorchNetwork",
    "Trained",
    "UncertaintySource",
    "calibrate",
    "calibrate_hash_layer",
    "choose_device",
    "load_networks",
    "load_text_networks",
    "outputs_and_uncertainty",
    "state_by_part",
    "to_device",
]
