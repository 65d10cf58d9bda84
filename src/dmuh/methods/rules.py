"""What settings must keep together, and what follows from them where they are not given.

A rule looks at the method, its name and the settings as they were given, and returns the sentence that says what is
wrong, or None. A new one is a function here and a line in RULES. That each setting is of its type and within its
bounds is checked by `dmuh.config.build`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dmuh.backbones import BACKBONES, FAMILIES, Backbone
from dmuh.backbones.efficientnet_lite import EfficientNetLite0
from dmuh.config import DataSettings, keys_of
from dmuh.methods.base import Objective
from dmuh.network import MomentumCopy

if TYPE_CHECKING:  # which imports scikit-learn: a training by a deep method begins without it
    from dmuh.methods.images_and_texts import ShallowCrossModal
    from dmuh.methods.shallow import ShallowMethod

Method: TypeAlias = "type[Objective] | type[ShallowMethod] | type[ShallowCrossModal]"
Settings = Mapping[str, Any]
Rule = Callable[[str, Method, Settings], str | None]

_BACKBONES = {"mnist5k": "smallconv", "features": "features"}  # that suit a data set; photographs have another
_HIDDEN_DROPOUT = 0.5  # of a hidden layer, where the settings say own: as everyone has it since it was invented
_CACHED = ("none", "flip")  # augmentations that leave the images of a frozen backbone alone


def shallow_methods_need_a_frozen_backbone(name: str, method: Method, values: Settings) -> str | None:
    """Refuse a shallow method above a backbone that trains: it is fitted to features, once."""
    if method.kind == "shallow" and values["freeze"] != "all":
        return f"{name} is fitted to the features of a frozen backbone: freeze must be all, got {values['freeze']}"
    return None


def texts_stand_beside_fixed_features(name: str, method: Method, values: Settings) -> str | None:
    """Refuse texts that the method does not learn from, and a method for both above a backbone that trains."""
    if not method.takes_texts:
        others = "a method for images and texts, such as dmuh-x"
        return f"{name} learns from images alone: with texts, choose {others}" if values.get("texts") else None
    if not _fixed(values):
        return f"{name} learns above the features of a frozen backbone: freeze must be all, augment none or flip"
    return None


def a_kernel_needs_fixed_features(name: str, method: Method, values: Settings) -> str | None:
    """Refuse similarities to training images where training changes the features that they are computed from."""
    del name
    if values.get("kernel") and (method.kind == "shallow" or not _fixed(values)):
        return "kernel is for deep methods on a frozen backbone: freeze must be all, augment none or flip"
    return None


def labels_are_judged_by_fixed_features(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to judge labels by features that training changes."""
    del name, method
    if values.get("wrong_labels") == "leave-out" and not _fixed(values):
        return "labels are judged by the features of a frozen backbone: freeze must be all, augment none or flip"
    return None


def a_hidden_layer_is_trained_on_features(name: str, method: Method, values: Settings) -> str | None:
    """Refuse a hidden layer where none is trained, or where its place is taken by similarities."""
    if not values.get("hidden"):
        return None
    if method.kind == "shallow":
        return f"hidden is for deep methods: {name} fits its own head, got hidden {values['hidden']}"
    if values.get("kernel"):
        return f"hidden and kernel exclude each other, got hidden {values['hidden']} and kernel {values['kernel']}"
    return None


def dropout_needs_a_place(name: str, method: Method, values: Settings) -> str | None:
    """Refuse dropout in a network that has no place for it."""
    if not values.get("dropout"):
        return None
    if method.kind == "shallow":
        return f"dropout is for deep methods: {name} is fitted in one go, got dropout {values['dropout']}"
    if not own_dropout(values):
        having = ", ".join(other for other, kind in BACKBONES.items() if kind.dropout)
        return (
            f"dropout has no place in this network: give it a hidden layer, or without kernel one of the backbones "
            f"{having}, got {values['backbone']}" + (f" with kernel {values['kernel']}" if values.get("kernel") else "")
        )
    return None


def masks_are_shared_where_there_are_any(name: str, method: Method, values: Settings) -> str | None:
    """Refuse one mask for network and copy where nothing is masked."""
    del name
    if "shared_mask" in keys_of(method.Options) and values.get("shared_mask") is True and not values.get("dropout"):
        return "shared_mask is about the masks of dropout: dropout must be above 0, got 0"
    return None


def shallow_methods_keep_no_copy(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to encode with the averaged copy of a method that averages nothing."""
    if values.get("encoder") == "copy" and method.kind == "shallow":
        return f"{name} has no copy of its own: encoder must be network"
    return None


def a_copy_that_encodes_must_be_kept(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to encode with an averaged copy that neither the method keeps nor the settings ask for."""
    has_copy = "alpha" in keys_of(method.Options) or values.get("uncertainty_alpha") is not None
    if values.get("encoder") == "copy" and method.kind == "deep" and not has_copy:
        return f"{name} has no copy of its own: encoder = copy needs uncertainty_alpha"
    return None


def uncertainty_by_a_copy_needs_one(name: str, method: Method, values: Settings) -> str | None:
    """Refuse to read the uncertainty of codes from an averaged copy that nobody keeps."""
    has_copy = "alpha" in keys_of(method.Options) or values.get("uncertainty_alpha") is not None
    if values.get("uncertainty") != MomentumCopy.name or (has_copy and method.kind == "deep"):
        return None
    remedy = "" if method.kind == "shallow" else ", or give uncertainty_alpha"
    return f"{name} has no copy of its own: uncertainty must be margin{remedy}"


def a_second_copy_must_be_used(name: str, method: Method, values: Settings) -> str | None:
    """Refuse a second copy that neither gives the codes their uncertainty nor makes them."""
    del name, method
    if values.get("uncertainty_alpha") is None or "copy" in (values.get("uncertainty"), values.get("encoder")):
        return None
    return "uncertainty_alpha is of a copy that nothing uses: uncertainty or encoder must be copy"


RULES: tuple[Rule, ...] = (
    shallow_methods_need_a_frozen_backbone,
    texts_stand_beside_fixed_features,
    a_kernel_needs_fixed_features,
    labels_are_judged_by_fixed_features,
    a_hidden_layer_is_trained_on_features,
    dropout_needs_a_place,
    masks_are_shared_where_there_are_any,
    shallow_methods_keep_no_copy,
    a_copy_that_encodes_must_be_kept,
    uncertainty_by_a_copy_needs_one,
    a_second_copy_must_be_used,
)


def network_defaults(method: Method, values: Settings) -> dict[str, Any]:
    """Return the backbone that suits the data set, what of it trains, and the augmentation and decay that suit that."""
    backbone = values.get("backbone") or _default_backbone(str(values.get("dataset") or DataSettings.dataset))
    kind = _kind(backbone)
    fixed = method.kind == "shallow" or method.takes_texts
    freeze = str(values.get("freeze") or ("all" if fixed else kind.freeze))
    augment = {"none": kind.augment, "all": "none"}.get(freeze, "flip")
    leaves_out = values.get("head") == "auto" and _fixed(
        {"freeze": freeze, "augment": values.get("augment") or augment}
    )
    found = {"backbone": backbone, "freeze": freeze, "augment": augment,
             "wrong_labels": "leave-out" if leaves_out else "keep"}  # fmt: skip
    if values.get("head") == "auto" and freeze == "all" and method.kind == "deep":
        return found  # the data choose the rest
    return found | {"kernel": 0, "weight_decay": head_weight_decay(values.get("hidden")) if freeze == "all" else 1e-4}


def head_weight_decay(hidden: Any) -> float:
    """Return the weight decay of a head that trains alone, with this many hidden units or none.

    A layer on a thousand fixed features has nothing else that keeps it from learning the training images by heart; but
    what is right for one is too much for two, which shrink together.
    """
    return 0.003 if hidden else 0.03


def own_dropout(values: Settings) -> float:
    """Return the rate of dropout that belongs to the network of these settings; 0 where it has no place for it."""
    if values.get("hidden"):
        return _HIDDEN_DROPOUT
    return 0.0 if values.get("kernel") else _kind(values["backbone"]).dropout


def _fixed(values: Settings) -> bool:
    """Whether the features of an image are the same in all epochs."""
    return values["freeze"] == "all" and values["augment"] in _CACHED


def _kind(backbone: Any) -> type[Backbone]:
    return {**BACKBONES, **FAMILIES}.get(str(backbone).partition(":")[0], Backbone)


def _default_backbone(dataset: str) -> str:
    """Return the backbone for a data set; for photographs the one whose weights are installed."""
    if dataset in _BACKBONES:
        return _BACKBONES[dataset]
    return "efficientnet-lite0" if EfficientNetLite0.weights_installed() else "smallconv"
