"""The versions and the machine that a run is made with."""

import importlib.metadata
import os
import platform
from typing import Any

_PACKAGES = ("dmuh", "torch", "onnxruntime", "numpy", "pillow")


def environment() -> dict[str, Any]:
    """Return the versions and the machine that a run was made with."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "python": platform.python_version(),
        "packages": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
