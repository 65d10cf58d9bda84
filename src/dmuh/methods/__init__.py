"""Methods by name. A new one is a file here with an Objective or a ShallowMethod, and a line in METHODS."""

from collections.abc import Mapping
from typing import Any

from dmuh.backbones import BACKBONES, FAMILIES, Backbone
from dmuh.backbones.efficientnet_lite import EfficientNetLite0
from dmuh.config import SECTIONS, Config, DataSettings, build, keys_of
from dmuh.errors import ConfigError, unknown
from dmuh.methods.base import Objective, TrainBatch
from dmuh.methods.cosdish import COSDISH
from dmuh.methods.csq import CSQ
from dmuh.methods.ddsh import DDSH
from dmuh.methods.dhn import DHN
from dmuh.methods.dmuh import DMUH, DMUHNoBit, DMUHNoImage, DMUHNoU
from dmuh.methods.dpsh import DPSH
from dmuh.methods.dsdh import DSDH
from dmuh.methods.dsh import DSH
from dmuh.methods.fasth import FastH
from dmuh.methods.itq import ITQ
from dmuh.methods.lfh import LFH
from dmuh.methods.regu import Regu
from dmuh.methods.sdh import SDH
from dmuh.methods.shallow import ShallowMethod

__all__ = ["METHODS", "Method", "Objective", "ShallowMethod", "TrainBatch", "configure"]

Method = type[Objective] | type[ShallowMethod]

METHODS: dict[str, Method] = {
    "dmuh": DMUH,
    "dmuh-no-u": DMUHNoU,
    "dmuh-no-bit": DMUHNoBit,
    "dmuh-no-image": DMUHNoImage,
    "regu": Regu,
    "csq": CSQ,
    "dhn": DHN,
    "dsh": DSH,
    "dpsh": DPSH,
    "dsdh": DSDH,
    "ddsh": DDSH,
    "lfh": LFH,
    "fasth": FastH,
    "sdh": SDH,
    "cosdish": COSDISH,
    "itq": ITQ,
}


def configure(*layers: Mapping[str, Any], preset: str = "") -> Config:
    """Stack layers of settings, later ones winning, on the method's preset and defaults; check them all at once.

    >>> config = dmuh.configure({"dataset": "folder", "data": "photos"}, {"bits": 48})
    >>> config.method, config.network.bits, config.data.data
    ('dmuh', 48, 'photos')
    >>> dmuh.configure({"bitts": 48})
    Traceback (most recent call last):
    dmuh.errors.ConfigError: unknown setting 'bitts': did you mean bits ...?
    """
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
    values |= {key: value for key, value in _network_defaults(method, values).items() if values.get(key) in (None, "")}
    if issubclass(method, ShallowMethod) and values["freeze"] != "all":
        problems.append(
            f"{name} is fitted to the features of a frozen backbone: freeze must be all, got {values['freeze']}"
        )
    if values.get("kernel") and (issubclass(method, ShallowMethod) or values["freeze"] != "all"
                                 or values["augment"] not in ("none", "flip")):  # fmt: skip
        problems.append("kernel is for deep methods on a frozen backbone: freeze must be all, augment none or flip")
    copied = "alpha" in keys_of(method.Options) or values.get("uncertainty_alpha") is not None
    if values.get("encoder") == "copy" and (issubclass(method, ShallowMethod) or not copied):
        way = "must be network" if issubclass(method, ShallowMethod) else "= copy needs uncertainty_alpha"
        problems.append(f"{name} has no copy of its own: encoder {way}")
    unasked = values.get("uncertainty") == "margin" and values.get("encoder") != "copy"
    if unasked and values.get("uncertainty_alpha") is not None:
        problems.append(
            "uncertainty_alpha is of a copy that nothing asks: uncertainty or encoder must be copy, got margin and "
            "network"
        )
    sections = {key: build(section, values, problems) for key, section in SECTIONS.items()}
    options = build(method.Options, values, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(method=name, options=options, **sections)  # type: ignore[arg-type]


def _network_defaults(method: Method, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the backbone that suits the data set, what of it trains, and the augmentation and decay that suit that."""
    dataset, backbone = values.get("dataset") or DataSettings.dataset, values.get("backbone")
    if not backbone and dataset in ("mnist5k", "features"):
        backbone = {"mnist5k": "smallconv", "features": "features"}[dataset]
    elif not backbone:
        backbone = "efficientnet-lite0" if EfficientNetLite0.weights_installed() else "smallconv"
    kind = {**BACKBONES, **FAMILIES}.get(str(backbone).partition(":")[0], Backbone)
    shallow = issubclass(method, ShallowMethod)
    freeze = str(values.get("freeze") or ("all" if shallow else kind.freeze))
    augment = {"none": kind.augment, "all": "none"}.get(freeze, "flip")
    # a layer on a thousand fixed features has nothing else that keeps it from learning the training images by heart
    weight_decay = 0.03 if freeze == "all" else 1e-4
    return {"backbone": backbone, "freeze": freeze, "augment": augment, "weight_decay": weight_decay}
