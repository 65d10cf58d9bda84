"""What a shallow method is: an estimator on features, after scikit-learn's conventions.

    constructor     stores its settings, computes nothing
    fit(X, y)       features (N, n_features) and labels: class numbers (N,) or 0/1 (N, classes); returns itself
    project(X)      real outputs (n, n_bits), whose signs are the code

What `fit` finds ends in an underscore; `head_` is the part of a network that computes the same as `project`.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from dmuh.datasets import one_hot
from dmuh.errors import InputError

_BATCH = 4096


class ShallowMethod(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """One shallow method; its settings are the constructor's arguments, n_bits and seed among them.

    Options, title, paper, year, defaults and presets are as those of a deep method.
    """

    kind: ClassVar[str] = "shallow"
    Options: ClassVar[type[Any]]
    title: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    needs_labels: ClassVar[bool] = True
    takes_texts: ClassVar[bool] = False

    n_bits: int
    seed: int
    head_: nn.Module
    losses_: list[float]  # of the method's objective, step by step

    @classmethod
    def of(cls, options: Any, n_bits: int, seed: int) -> "ShallowMethod":
        """Make one from the options of a configuration."""
        return cls(n_bits=n_bits, seed=seed, **dataclasses.asdict(options))

    def fit(self, X: Any, y: Any = None) -> "ShallowMethod":
        """Learn from features (N, n_features) and labels."""
        if self.n_bits < 1:
            raise InputError(f"n_bits must be at least 1, got {self.n_bits}")
        features = _for_torch(validate_data(self, X, dtype=np.float32, ensure_min_samples=2))
        if y is None and self.needs_labels:
            raise InputError(
                f"{type(self).__name__} learns from labels: requires y to be passed, but the target y is None"
            )
        labels = None if y is None else label_matrix(y)
        if labels is not None and len(labels) != len(features):
            raise InputError(f"X has {len(features)} rows but y has {len(labels)}: inconsistent numbers of samples")
        self.losses_ = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._fit(torch.from_numpy(features), None if labels is None else torch.from_numpy(labels).float())
        return self

    @torch.inference_mode()
    def project(self, X: Any) -> NDArray[np.float32]:
        """Return the outputs (n, n_bits) of features (n, n_features)."""
        check_is_fitted(self, "head_")
        features = _for_torch(validate_data(self, X, dtype=np.float32, reset=False))
        rows = torch.from_numpy(features)
        parts = [self.head_(rows[n : n + _BATCH]) for n in range(0, len(rows), _BATCH)]
        outputs: NDArray[np.float32] = torch.cat(parts).float().numpy()
        return outputs

    @abc.abstractmethod
    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        """Set `head_` and `losses_` from features (N, n_features) and labels (N, classes), random by torch."""


def _for_torch(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features as torch takes them: one row behind the other, and not locked."""
    return np.require(features, requirements=["C", "W"])


def label_matrix(y: Any) -> NDArray[np.uint8]:
    """Return labels (N, classes) 0/1 from such a matrix, or from one class per row: numbers or names (N,)."""
    labels = np.asarray(y)
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (labels == np.trunc(labels))).all():
        raise InputError("labels must be classes: an unknown label type, numbers that are not whole, was given")
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        return labels.astype(np.uint8)
    if labels.ndim != 1:
        raise InputError(f"labels must be classes (N,) or 0 and 1 (N, classes), got shape {labels.shape}")
    return one_hot(np.unique(labels, return_inverse=True)[1].astype(np.int64))


def linear_head(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return the layer x·weight + bias for weight (n_features, n_bits)."""
    head = nn.Linear(weight.shape[0], weight.shape[1])
    with torch.no_grad():
        head.weight.copy_(weight.T)
        head.bias.copy_(bias)
    return head.requires_grad_(False)


def fit_linear_head(features: Tensor, codes: Tensor, ridge: float) -> nn.Linear:
    """Return the linear head of least squares from standardised features to codes (N, n_bits), with a ridge.

    The ridge is ridge·N: the papers' 1, on all images together, fits the noise where features are nearly as many.
    """
    mean, deviation = features.mean(dim=0), features.std(dim=0, correction=0) + 1e-6
    x = ((features - mean) / deviation).double()
    middle = codes.double().mean(dim=0)
    gram = x.T @ x + ridge * len(x) * torch.eye(x.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(gram, x.T @ (codes.double() - middle)) / deviation.double()[:, None]
    return linear_head(weight.float(), (middle - mean.double() @ weight).float())


def random_signs(n: int, n_bits: int) -> Tensor:
    """Return codes of fair random signs (n, n_bits)."""
    return torch.randint(0, 2, (n, n_bits)).float() * 2 - 1
