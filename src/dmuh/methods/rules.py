"""What settings must keep together, and what follows from them where they are not given.

A rule looks at the method, its name and the settings as they were given, and returns the sentence that says what is
wrong, or None. A new one is a function here and a line in RULES. That each setting is of its type and within its
bounds is checked by `dmuh.config.build`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dmuh.backbones import BACKBONES, FAMILIES, Backbone
from dmuh.backbones.efficientnet_lite import EfficientNetLite0
from dmuh.config import DataSettings, keys_of
from dmuh.methods.base import Objective
from dmuh.methods.shallow import ShallowMethod
from dmuh.network import MomentumCopy

Method = type[Objective] | type[ShallowMethod]
Settings = Mapping[str, Any]
Rule = Callable[[str, Method, Settings], str | None]

_BACKBONES = {"mnist5k": "smallconv", "features": "features"}  # that suit a data set; photographs have another
_CACHED = ("none", "flip")  # augmentations that leave the images of a frozen backbone alone


def shallow_methods_need_a_frozen_backbone(name: str, method: Method, values: Settings) -> str | None:
    """Refuse a shallow method above a backbone that trains: it is fitted to features, once."""
    if issubclass(method, ShallowMethod) and values["freeze"] != "all":
        return f"{name} is fitted to the features of a frozen backbone: freeze must be all, got {values['freeze']}"
    return None


def a_kernel_needs_fixed_features(name: str, method: Method, values: Settings) -> str | None:
    """Refuse similarities to training images where training changes the features that they are computed from."""
    del name
    fixed = values["freeze"] == "all" and values["augment"] in _CACHED
    if values.get("kernel") and (issubclass(method, ShallowMethod) or not fixed):
        return "kernel is for deep methods on a frozen backbone: freeze must be all, augment none or flip"
    return None


def shallow_methods_keep_no_copy(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to encode with the averaged copy of a method that averages nothing."""
    if values.get("encoder") == "copy" and issubclass(method, ShallowMethod):
        return f"{name} has no copy of its own: encoder must be network"
    return None


def a_copy_that_encodes_must_be_kept(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to encode with an averaged copy that neither the method keeps nor the settings ask for."""
    has_copy = "alpha" in keys_of(method.Options) or values.get("uncertainty_alpha") is not None
    if values.get("encoder") == "copy" and not issubclass(method, ShallowMethod) and not has_copy:
        return f"{name} has no copy of its own: encoder = copy needs uncertainty_alpha"
    return None


def uncertainty_by_a_copy_needs_one(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to read the uncertainty of codes from an averaged copy that nobody keeps."""
    has_copy = "alpha" in keys_of(method.Options) or values.get("uncertainty_alpha") is not None
    if values.get("uncertainty") != MomentumCopy.name or (has_copy and not issubclass(method, ShallowMethod)):
        return None
    remedy = "" if issubclass(method, ShallowMethod) else ", or give uncertainty_alpha"
    return f"{name} has no copy of its own: uncertainty must be margin{remedy}"


def a_second_copy_must_be_used(name: str, method: Method, values: Settings) -> str | None:
    """Refuse a second copy that neither gives the codes their uncertainty nor makes them."""
    del name, method
    if values.get("uncertainty_alpha") is None or "copy" in (values.get("uncertainty"), values.get("encoder")):
        return None
    return "uncertainty_alpha is of a copy that nothing uses: uncertainty or encoder must be copy"


RULES: tuple[Rule, ...] = (
    shallow_methods_need_a_frozen_backbone,
    a_kernel_needs_fixed_features,
    shallow_methods_keep_no_copy,
    a_copy_that_encodes_must_be_kept,
    uncertainty_by_a_copy_needs_one,
    a_second_copy_must_be_used,
)


def network_defaults(method: Method, values: Settings) -> dict[str, Any]:
    """Return the backbone that suits the data set, what of it trains, and the augmentation and decay that suit that."""
    backbone = values.get("backbone") or _default_backbone(str(values.get("dataset") or DataSettings.dataset))
    kind = {**BACKBONES, **FAMILIES}.get(str(backbone).partition(":")[0], Backbone)
    freeze = str(values.get("freeze") or ("all" if issubclass(method, ShallowMethod) else kind.freeze))
    augment = {"none": kind.augment, "all": "none"}.get(freeze, "flip")
    # a layer on a thousand fixed features has nothing else that keeps it from learning the training images by heart
    weight_decay = 0.03 if freeze == "all" else 1e-4
    return {"backbone": backbone, "freeze": freeze, "augment": augment, "weight_decay": weight_decay}


def _default_backbone(dataset: str) -> str:
    """Return the backbone for a data set; for photographs the one whose weights are installed."""
    if dataset in _BACKBONES:
        return _BACKBONES[dataset]
    return "efficientnet-lite0" if EfficientNetLite0.weights_installed() else "smallconv"
