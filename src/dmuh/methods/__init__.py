"""Methods by name. A new one is a file here with an Objective, and a line in METHODS."""

from collections.abc import Mapping
from typing import Any

from dmuh.backbones import BACKBONES, FAMILIES, Backbone
from dmuh.backbones.efficientnet_lite import EfficientNetLite0
from dmuh.config import SECTIONS, Config, DataSettings, build, keys_of
from dmuh.errors import ConfigError, unknown
from dmuh.methods.base import Objective, TrainBatch
from dmuh.methods.dmuh import DMUH, DMUHNoBit, DMUHNoImage, DMUHNoU
from dmuh.methods.regu import Regu

__all__ = ["METHODS", "Objective", "TrainBatch", "configure"]

METHODS: dict[str, type[Objective]] = {
    "dmuh": DMUH,
    "dmuh-no-u": DMUHNoU,
    "dmuh-no-bit": DMUHNoBit,
    "dmuh-no-image": DMUHNoImage,
    "regu": Regu,
}


def configure(*layers: Mapping[str, Any], preset: str = "") -> Config:
    """Stack layers of settings, later ones winning, on the method's preset and defaults; check them all at once."""
    given: dict[str, Any] = {}
    for layer in layers:
        given |= layer
    name = given.pop("method", "dmuh")
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(unknown("method", str(name), METHODS))
    method = METHODS[name]
    if preset and preset not in method.presets:
        raise ConfigError(f"{name} has no such preset; {unknown('preset', preset, method.presets)}")
    values = {**method.defaults, **(method.presets[preset] if preset else {}), **given}

    known = {key for section in SECTIONS.values() for key in keys_of(section)} | {
        *keys_of(method.Options),
        "method",
    }
    problems = [unknown("setting", key, known) for key in given if key not in known]
    values |= {key: value for key, value in _network_defaults(values).items() if not values.get(key)}
    sections = {key: build(section, values, problems) for key, section in SECTIONS.items()}
    options = build(method.Options, values, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(method=name, options=options, **sections)  # type: ignore[arg-type]


def _network_defaults(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the backbone that suits the data set, what of it trains, and the augmentation that suits that."""
    dataset, backbone = values.get("dataset") or DataSettings.dataset, values.get("backbone")
    if not backbone and dataset in ("mnist5k", "features"):
        backbone = {"mnist5k": "smallconv", "features": "features"}[dataset]
    elif not backbone:
        backbone = "efficientnet-lite0" if EfficientNetLite0.weights_installed() else "smallconv"
    kind = {**BACKBONES, **FAMILIES}.get(str(backbone).partition(":")[0], Backbone)
    freeze = str(values.get("freeze") or kind.freeze)
    augment = {"none": kind.augment, "all": "none"}.get(freeze, "flip")
    return {"backbone": backbone, "freeze": freeze, "augment": augment}
