"""Settings of a run: frozen, validated, read from TOML files and key=value pairs.

A configuration is a few sections of flat settings. Every key is unique over all sections, so `lr=0.01` is enough to
name one. Problems are collected and reported together; an unknown key names its near miss.

A layer is a flat mapping of keys to values. Later layers win: built-in defaults, the method's defaults, its preset,
the file, the command line. `dmuh.methods.configure` stacks them, since only it knows the options of each method.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmuh.config.checking import build
from dmuh.config.sections import (
    SECTIONS,
    DataSettings,
    NetworkSettings,
    ProtocolSettings,
    TrainingSettings,
    describe,
    keys_of,
    setting,
)
from dmuh.config.toml import parse_override, parse_toml, read_toml, toml_value
from dmuh.files.documents import digest_of

__all__ = [
    "SECTIONS",
    "Config",
    "DataSettings",
    "NetworkSettings",
    "ProtocolSettings",
    "TrainingSettings",
    "build",
    "describe",
    "keys_of",
    "parse_override",
    "parse_toml",
    "read_toml",
    "setting",
    "settings_digest",
]

_OF_THE_MACHINE = {"data", "device", "workers"}  # settings that a run may change when it goes on


@dataclass(frozen=True)
class Config:
    """Everything that determines a run: the method, its options and the four sections.

    >>> config = dmuh.configure({"method": "dmuh", "bits": 48, "epochs": 20})
    >>> config.network.bits, config.training.epochs
    (48, 20)
    """

    method: str
    options: Any  # the frozen dataclass of the method
    data: DataSettings
    protocol: ProtocolSettings
    network: NetworkSettings
    training: TrainingSettings

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the sections as plain values, without those that are None.

        >>> dmuh.configure({"bits": 48}).to_dict()["network"]["bits"]
        48
        """
        sections = {"method": {"method": self.method, **dataclasses.asdict(self.options)}}
        for name in SECTIONS:
            sections[name] = dataclasses.asdict(getattr(self, name))
        return {name: {k: v for k, v in values.items() if v is not None} for name, values in sections.items()}

    def same_training(self, other: "Config") -> bool:
        """Return whether two configurations give the same network, wherever their data lie and what computes it.

        >>> config = dmuh.configure({"dataset": "folder", "data": "photos"})
        >>> config.same_training(dmuh.configure({"dataset": "folder", "data": "/mnt/photos"}))
        True
        >>> config.same_training(dmuh.configure({"dataset": "folder", "data": "photos", "bits": 48}))
        False
        """
        return _lasting(self) == _lasting(other)

    def to_toml(self) -> str:
        """Return the text of a file that `read_toml` reads back to the same settings.

        >>> print(dmuh.configure({"bits": 48}).to_toml())
        [method]
        method = "dmuh"
        ...
        bits = 48
        ...
        """
        lines: list[str] = []
        for name, values in self.to_dict().items():
            lines += [f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in values.items()), ""]
        return "\n".join(lines)


def settings_digest(layer: Mapping[str, Any]) -> str:
    """Return the digest of a flat layer of settings, without those that say where the data are and what computes."""
    lasting = {key: value for key, value in layer.items() if key not in _OF_THE_MACHINE}
    return digest_of(lasting)


def _lasting(config: Config) -> str:
    return settings_digest({key: value for values in config.to_dict().values() for key, value in values.items()})
