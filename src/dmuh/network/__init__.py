"""The hashing network, its momentum copy, its heads, and where the uncertainty of codes comes from."""

from dmuh.network.device import TorchNetwork, choose_device, to_device
from dmuh.network.hash_network import HashNetwork, calibrate, calibrate_hash_layer
from dmuh.network.loading import load_networks, state_by_part
from dmuh.network.momentum import MomentumCopy
from dmuh.network.uncertainty import Doubt, Margin, outputs_and_uncertainty

__all__ = [
    "Doubt",
    "HashNetwork",
    "Margin",
    "MomentumCopy",
    "TorchNetwork",
    "calibrate",
    "calibrate_hash_layer",
    "choose_device",
    "load_networks",
    "outputs_and_uncertainty",
    "state_by_part",
    "to_device",
]
