"""Settings of a run: frozen, validated, read from TOML files and key=value pairs.

A configuration is a few sections of flat settings. Every key is unique over all sections, so `lr=0.01` is enough to
name one. Problems are collected and reported together; an unknown key names its near miss.

A layer is a flat mapping of keys to values. Later layers win: built-in defaults, the method's defaults, its preset,
the file, the command line. `dmuh.methods.configure` stacks them, since only it knows the options of each method.
"""

import dataclasses
import math
import re
import sys
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dmuh.documents import digest_of
from dmuh.errors import ConfigError, unknown

T = TypeVar("T")
_NO_TEXT = re.compile("[\udc80-\udcff]")  # as Python has the bytes of a path that are no UTF-8, which TOML cannot have
_NO_TEXT_IN_TOML = re.compile("\0([89a-f][0-9a-f])")  # a path has no zeros
_OF_THE_MACHINE = {"data", "device", "workers"}  # settings that a run may change when it goes on


def setting(
    default: Any,
    about: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one setting: its default, one line about it, and what it may be.

    Bounds are inclusive (`low`, `high`) or exclusive (`above`, `below`).
    """
    limits = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"about": about, "choices": choices, **limits})


@dataclass(frozen=True)
class DataSettings:
    """Where the images and labels come from."""

    dataset: str = setting("mnist5k", "name of the data set, see `dmuh list`")
    data: str = setting("", "folder or file the data set is read from; empty for embedded ones")
    on_bad_image: str = setting("fail", "what an unreadable image does", choices=("fail", "skip"))
    class_folder: str = setting(
        "top",
        "folder: the class is the first folder below the root, or the image's own",
        choices=("top", "own"),
    )
    path_column: str = setting("", "csv: column with the image path; empty looks for image, path, file, filename")
    path_format: str = setting("", "csv: builds the path from columns, e.g. images/{image_id}.jpg")
    label_column: str = setting(
        "", "csv: column with the labels; empty looks for labels, label, class, then 0/1 columns"
    )
    label_separator: str = setting("", "csv: what separates labels in that column; empty means ;")
    clothing_labels: str = setting("noisy", "clothing1m: which labels are read", choices=("noisy", "clean"))


@dataclass(frozen=True)
class ProtocolSettings:
    """Which images train, which are queries and which are searched."""

    protocol: str = setting("", "name of the split; empty takes that of the data set")
    query: float | None = setting(None, "query images per class (1 or more), or their fraction (below 1)", above=0)
    train: float | None = setting(None, "training images per class (1 or more), or their fraction (below 1)", above=0)
    database: str | None = setting(None, "what is searched: the remaining images, or those and the training images",
                                   choices=("rest", "rest+train"))  # fmt: skip
    validation: float = setting(
        0.1, "fraction of the training images that the training is watched with instead", low=0, high=0.5
    )
    tuning: float = setting(
        0.0,
        "fraction of the training images that are queries (a third of it) and database (the rest) in place of the test "
        "images, to choose settings by",
        low=0,
        high=0.9,
    )
    label_noise: float = setting(
        0.0, "fraction of the training images that learn with the labels of an image unlike them", low=0, high=1
    )


@dataclass(frozen=True)
class NetworkSettings:
    """The hashing network."""

    bits: int = setting(32, "length of the code", low=1, high=1024)
    backbone: str = setting("", "name of the backbone, see `dmuh list`; empty chooses one that suits the data set")
    freeze: str = setting(
        "",
        "what of the backbone does not train: all, none, or the name of the last part that does not; empty takes the "
        "backbone's default",
    )
    kernel: int = setting(
        0,
        "training images whose similarities stand between the features of a frozen backbone and the hash layer of a "
        "deep method; 0 for none",
        low=0,
        high=20_000,
    )
    weights: str = setting("", "file with the backbone's weights, for backbones that read one")
    image_size: int | None = setting(None, "side of the square input in pixels; not given, the backbone's default",
                                     low=8, high=1024)  # fmt: skip


@dataclass(frozen=True)
class TrainingSettings:
    """The training loop."""

    epochs: int = setting(30, "passes over the training images", low=1)
    batch_size: int = setting(128, "images per step", low=2)
    optimizer: str = setting("sgd", "the optimiser", choices=("sgd", "adamw"))
    lr: float = setting(0.1, "learning rate at the start", above=0)
    lr_final: float = setting(0.001, "learning rate at the end", above=0)
    schedule: str = setting("log", "how it gets there: log-spaced, cosine, or divided by 10 in equal steps",
                            choices=("log", "cosine", "step"))  # fmt: skip
    warmup_epochs: float = setting(0.0, "epochs in which the rate rises from zero", low=0)
    backbone_lr: float = setting(
        1.0, "factor on the backbone's learning rate; the hash layer keeps the full one", low=0
    )
    sgd_momentum: float = setting(0.9, "momentum of SGD", low=0, below=1)
    weight_decay: float | None = setting(
        None, "weight decay; not given, 0.03 where only the hash layer trains, else 0.0001", low=0
    )
    clip: float = setting(
        1.0, "largest norm of the gradient of a step; longer ones are shortened, 0 leaves them", low=0
    )
    augment: str = setting(
        "",
        "random changes of the training images; empty is flip above a frozen part, none with all of it frozen, else "
        "the backbone's default; those that crop read the images in every epoch",
        choices=("", "none", "flip", "crop", "crop+flip", "resized-crop+flip", "resized-crop+flip+colour"),
    )
    uncertainty: str = setting(
        "copy",
        "what codes get their uncertainty from: how far the averaged copy's outputs are from the network's, as in the "
        "paper, or the margin, how near an output is to 0, which all methods have",
        choices=("copy", "margin"),
    )
    uncertainty_alpha: float | None = setting(
        None,
        "momentum coefficient of a second copy that takes no part in the training and gives the codes their "
        "uncertainty; not given, it comes from the copy of the method, if that has one",
        low=0,
        below=1,
    )
    encoder: str = setting(
        "network",
        "what makes the codes after the training: the network, or its averaged copy",
        choices=("network", "copy"),
    )
    evaluate_every: int = setting(1, "epochs between two measurements of the validation MAP", low=1)
    seed: int = setting(0, "seed of the split, the weights and the order of the images", low=0, high=2**63 - 1)
    device: str = setting("auto", "auto, cpu, cuda or cuda:N")
    precision: str = setting("auto", "arithmetic of the network; auto is bfloat16 on a GPU that has it",
                             choices=("auto", "float32", "bfloat16"))  # fmt: skip
    workers: int | None = setting(
        None,
        "processes that read images, 0 reads in the main one; not given, chosen by images and cores",
        low=0,
        high=256,
    )


SECTIONS: dict[str, type[Any]] = {
    "data": DataSettings,
    "protocol": ProtocolSettings,
    "network": NetworkSettings,
    "training": TrainingSettings,
}


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
            lines += [f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in values.items()), ""]
        return "\n".join(lines)


def build(cls: type[T], values: Mapping[str, Any], problems: list[str]) -> T | None:
    """Make `cls` from `values`, adding a sentence to `problems` for each value that does not fit."""
    checked: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    before = len(problems)
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        if item.name in values:
            try:
                checked[item.name] = _checked(values[item.name], hints[item.name], item.metadata)
            except ValueError as error:
                problems.append(f"{item.name} must be {error}, got {values[item.name]!r}")
    return None if len(problems) > before else cls(**checked)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file into one flat layer; the method's options stand in its [method] section."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the flat layer of a configuration file's text."""
    sections = tomllib.loads(text)
    layer: dict[str, Any] = {}
    for name, values in sections.items():
        if name not in SECTIONS and name != "method":
            raise ConfigError(f"{path}: {unknown('section', name, [*SECTIONS, 'method'])}")
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: {name} must be a section, write [{name}]")
        for key in values:
            if name != "method" and key not in keys_of(SECTIONS[name]):
                raise ConfigError(f"{path}: {unknown(f'setting in [{name}]', key, keys_of(SECTIONS[name]))}")
        layer |= {key: _with_bytes(value) for key, value in values.items()}
    return layer


def _with_bytes(value: Any) -> Any:
    """Return a value of a file as it was set: what `_toml_value` wrote for bytes of a path that are no UTF-8."""
    return _NO_TEXT_IN_TOML.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), value) if isinstance(value, str) else value


def settings_digest(layer: Mapping[str, Any]) -> str:
    """Return the digest of a flat layer of settings, without those that say where the data are and what computes."""
    lasting = {key: value for key, value in layer.items() if key not in _OF_THE_MACHINE}
    return digest_of(lasting)


def _lasting(config: Config) -> str:
    return settings_digest({key: value for values in config.to_dict().values() for key, value in values.items()})


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key=value`; the value is read as TOML would (3, 0.1, true), anything else is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"a setting is given as key=value, got {text!r}")
    try:
        read = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        read = None
    return key.strip(), read if isinstance(read, int | float | str) else value.strip()


def keys_of(cls: type[Any]) -> list[str]:
    """Return the names of a section's settings."""
    return [item.name for item in dataclasses.fields(cls)]


def describe(cls: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, default, about) of each setting of a section."""
    for item in dataclasses.fields(cls):
        choices = item.metadata["choices"]
        yield (
            item.name,
            item.default,
            item.metadata["about"] + (f" ({' | '.join(choices)})" if choices else ""),
        )


def _checked(value: Any, hint: Any, limits: Mapping[str, Any]) -> Any:
    """Return `value` as the type `hint` within its limits, or raise ValueError saying what it must be."""
    optional = isinstance(hint, types.UnionType)
    if optional and value is None:
        return None
    kind = typing.get_args(hint)[0] if optional else hint
    if kind is str:
        if not isinstance(value, str) or (limits["choices"] and value not in limits["choices"]):
            raise ValueError(" or ".join(filter(None, limits["choices"])) or "a text")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    whole = kind is int
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not number or (whole and value != int(value)) or not _within(value, limits):
        raise ValueError(("a whole number" if whole else "a number") + _range(limits))
    return kind(value)


def _within(value: float, limits: Mapping[str, Any]) -> bool:
    return bool(limits["low"] <= value <= limits["high"] and limits["above"] < value < limits["below"])


def _range(limits: Mapping[str, Any]) -> str:
    lower, upper = max(limits["low"], limits["above"]), min(limits["high"], limits["below"])
    parts = []
    if lower > -math.inf:
        parts.append(f"above {lower:g}" if lower == limits["above"] else f"at least {lower:g}")
    if upper < math.inf:
        parts.append(f"below {upper:g}" if upper == limits["below"] else f"at most {upper:g}")
    return " " + " and ".join(parts) if parts else ""


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = _NO_TEXT.sub(lambda byte: f"\0{ord(byte[0]) - 0xDC00:02x}", value)
        escaped = escaped.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
