"""Hashing: every method behind scikit-learn's interface, for people with a matrix of features."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.errors import InputError
from dmuh.methods import METHODS, configure
from dmuh.methods.shallow import label_matrix
from dmuh.network import TorchNetwork, load_networks
from dmuh.protocols import Split
from dmuh.trainer import train


class Hashing(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns features (n, n_features) into codes, by any method of `dmuh list --methods`.

    method    its name
    n_bits    length of the codes
    seed      of everything that is left to chance
    settings  any others, by name, as `--set` takes them
    """

    def __init__(
        self, method: str = "dmuh", n_bits: int = 32, seed: int = 0, settings: dict[str, Any] | None = None
    ) -> None:
        self.method = method
        self.n_bits = n_bits
        self.seed = seed
        self.settings = settings

    def fit(self, X: Any, y: Any = None) -> "Hashing":
        """Learn from features (n, n_features) and labels: classes (n,), or 0 and 1 (n, classes)."""
        features = np.ascontiguousarray(validate_data(self, X, dtype=np.float32, ensure_min_samples=2))
        config = configure(
            {"validation": 0.0, **(self.settings or {}), "dataset": "features", "method": self.method,
             "bits": int(self.n_bits), "seed": int(self.seed)}
        )  # fmt: skip
        if y is None and METHODS[self.method].needs_labels:
            raise InputError(f"{self.method} learns from labels: requires y to be passed, but the target y is None")
        labels = np.zeros((len(features), 0), np.uint8) if y is None else label_matrix(y)
        if len(labels) != len(features):
            raise InputError(f"X has {len(features)} rows but y has {len(labels)}: inconsistent numbers of samples")
        classes = tuple(str(k) for k in range(labels.shape[1]))
        data = Dataset("features", features, labels, classes)
        none = np.empty(0, np.int64)
        with tempfile.TemporaryDirectory() as folder:
            split = Split(np.arange(len(data)), none, none, none)
            run = train(config, Path(folder) / "run", dataset=data, split=split, progress=False)
            model = run.load_model()
        self.network_ = TorchNetwork(*load_networks(model))
        return self

    def project(self, X: Any) -> NDArray[np.float32]:
        """Return the real outputs (n, n_bits), whose signs are the codes."""
        return self._run(X)["outputs"]

    def transform(self, X: Any) -> Codes:
        """Return the codes of features (n, n_features), with their uncertainty where the method has one."""
        result = self._run(X)
        return Codes.from_outputs(result["outputs"], result.get("uncertainty"))

    def _run(self, X: Any) -> dict[str, NDArray[np.float32]]:
        check_is_fitted(self, "network_")
        features = validate_data(self, X, dtype=np.float32, reset=False)
        return self.network_.run(np.ascontiguousarray(features))
