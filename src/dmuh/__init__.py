"""dmuh: short binary codes for images that know where they are unsure.

The public names, in the order of their use. Those that need torch are imported when first used, so that searching and
measuring work without it.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmuh.codes import Codes
    from dmuh.collection import Collection
    from dmuh.config import Config
    from dmuh.datasets import Dataset, load_dataset, one_hot
    from dmuh.encoder import Hasher
    from dmuh.errors import DmuhError
    from dmuh.estimator import CrossModalHashing, Hashing
    from dmuh.handover import hand_over
    from dmuh.index import HammingIndex, Matches
    from dmuh.methods import configure
    from dmuh.metrics import Metrics, evaluate
    from dmuh.report.matches import show_matches
    from dmuh.trainer import train

__version__ = "0.1.0"

# Importing ONNX Runtime would else write an id of this machine to the home folder and report to its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOME = {
    "Codes": "codes",
    "Collection": "collection",
    "Config": "config",
    "CrossModalHashing": "estimator",
    "Dataset": "datasets",
    "DmuhError": "errors",
    "HammingIndex": "index",
    "Hasher": "encoder",
    "Hashing": "estimator",
    "Matches": "index",
    "Metrics": "metrics",
    "configure": "methods",
    "evaluate": "metrics",
    "hand_over": "handover",
    "load_dataset": "datasets",
    "one_hot": "datasets",
    "show_matches": "report.matches",
    "train": "trainer",
}
_NEED_TORCH = ("estimator", "methods", "trainer")

__all__ = [
    "Codes",
    "Collection",
    "Config",
    "CrossModalHashing",
    "Dataset",
    "DmuhError",
    "HammingIndex",
    "Hasher",
    "Hashing",
    "Matches",
    "Metrics",
    "__version__",
    "configure",
    "evaluate",
    "hand_over",
    "load_dataset",
    "one_hot",
    "show_matches",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dmuh' has no attribute {name!r}")
    home = _HOME[name]
    try:
        module = importlib.import_module(f"dmuh.{home}")
    except ModuleNotFoundError as error:
        if home in _NEED_TORCH and error.name == "torch":
            from dmuh.errors import MissingExtraError

            raise MissingExtraError(f"dmuh.{name}", "train") from error
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
