"""Backbones by name. A new one is a file here with a Backbone, and a line in BACKBONES."""

from dmuh.backbones.base import Backbone
from dmuh.backbones.smallconv import SmallConv
from dmuh.errors import ConfigError, unknown

__all__ = ["BACKBONES", "Backbone", "create_backbone"]

BACKBONES: dict[str, type[Backbone]] = {
    "smallconv": SmallConv,
}


def create_backbone(name: str, image_size: int | None = None) -> Backbone:
    """Make a backbone; `image_size` overrides the side of its input."""
    if name not in BACKBONES:
        raise ConfigError(unknown("backbone", name, BACKBONES))
    return BACKBONES[name](image_size)
