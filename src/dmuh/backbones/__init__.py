"""Backbones by name. A new one is a file here with a Backbone, and a line in BACKBONES."""

from dmuh.backbones.base import Backbone
from dmuh.backbones.cnnf import CNNF
from dmuh.backbones.dropout import Dropout, Masks
from dmuh.backbones.efficientnet_lite import EfficientNetLite0, EfficientNetLite1, EfficientNetLite2
from dmuh.backbones.features import Features
from dmuh.backbones.smallconv import SmallConv
from dmuh.backbones.timm_model import TimmModel
from dmuh.errors import ConfigError, unknown

__all__ = ["BACKBONES", "FAMILIES", "Backbone", "Dropout", "Masks", "create_backbone"]

BACKBONES: dict[str, type[Backbone]] = {
    "smallconv": SmallConv,
    "cnnf": CNNF,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite1": EfficientNetLite1,
    "efficientnet-lite2": EfficientNetLite2,
}
FAMILIES: dict[str, type[Backbone]] = {"features": Features, "timm": TimmModel}  # one for each name:detail


def create_backbone(name: str, image_size: int | None = None) -> Backbone:
    """Make a backbone with fresh weights; `image_size` overrides the side of its input.

    Beside those of the table there are features:<width> and timm:<model>.
    """
    family, colon, detail = name.partition(":")
    if family == "features" and detail.isdecimal():
        return Features(int(detail))
    if family == "timm" and detail:
        return TimmModel(detail, image_size)
    if colon or name not in BACKBONES:
        raise ConfigError(unknown("backbone", name, [*BACKBONES, "features:<width>", "timm:<model>"]))
    return BACKBONES[name](image_size)
