"""From images to codes: `Hasher`, the networks that it runs without torch, and their export."""

from dmuh.encoder.export import export_run
from dmuh.encoder.hasher import Hasher

__all__ = ["Hasher", "export_run"]
