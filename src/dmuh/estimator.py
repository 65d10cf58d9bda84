"""Hashing: every method behind scikit-learn's interface, for people with a matrix of features."""

import dataclasses
import hashlib
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dmuh.codes import Codes
from dmuh.config import keys_of
from dmuh.datasets import Dataset
from dmuh.errors import ConfigError, InputError, unknown
from dmuh.methods import METHODS, ShallowMethod, configure
from dmuh.metrics import expected, pairs
from dmuh.network import TorchNetwork, load_networks
from dmuh.protocols import Split
from dmuh.trainer import train

# Settings of a run that matter for a matrix of features; all others are about images, folders and splits.
_EVERY_METHOD = ("uncertainty", "device")
_DEEP_METHODS = (
    "epochs", "batch_size", "optimizer", "lr", "lr_final", "schedule", "warmup_epochs", "sgd_momentum", "weight_decay",
    "clip", "kernel", "uncertainty_alpha", "encoder", "precision",
)  # fmt: skip
_MEASURED_ONCE = 2**31  # epochs between two measurements of the training MAP, which nobody sees here


def options_of(method: str) -> list[str]:
    """Return the parameters that a method has besides `method`, `n_bits` and `seed`: its own options first."""
    shallow = issubclass(METHODS[method], ShallowMethod)
    return [*keys_of(METHODS[method].Options), *(() if shallow else _DEEP_METHODS), *_EVERY_METHOD]


OPTIONS = list(dict.fromkeys(name for method in METHODS for name in options_of(method)))


class Hashing(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns features (n, n_features) into binary codes, by any method of `dmuh list --methods`.

    Parameters: method, its name; n_bits, the length of the codes; seed, of everything that is left to chance; and the
    options of the method and of its training by their names, such as Hashing("sdh", anchors=3000) or
    Hashing("dmuh", epochs=60, lr=0.05); `dmuh list --settings` explains them. One that is None or not given has the
    method's own default.

    After `fit`: train_codes_ and train_labels_, what `score` searches (labels 0/1 (n, classes), None if fitted without
    y); classes_, the class of each of their columns; n_features_in_ and, from a DataFrame, feature_names_in_.

    >>> X = np.repeat(np.eye(4, 8), 10, axis=0)  # 40 rows of 8 features
    >>> y = np.repeat(np.arange(4), 10)
    >>> hashing = dmuh.Hashing("itq", n_bits=4).fit(X, y)
    >>> hashing.transform(X).shape
    (40, 4)
    >>> hashing.codes(X)
    Codes(40 × 4 bits: ..., ..., ..., …)
    """

    def __init__(self, method: str = "dmuh", n_bits: int = 32, seed: int = 0, **options: Any) -> None:
        _refuse_unknown(options)
        self.method = method
        self.n_bits = n_bits
        self.seed = seed
        for name in OPTIONS:
            setattr(self, name, options.get(name))

    def set_params(self, **params: Any) -> "Hashing":
        """Set parameters by their names; return itself.

        >>> dmuh.Hashing("itq").set_params(n_bits=16).n_bits
        16
        """
        _refuse_unknown(params)
        return cast("Hashing", super().set_params(**params))

    def fit(self, X: Any, y: Any = None) -> "Hashing":
        """Learn from features (n, n_features) and labels; methods that need no labels (itq) also from y=None.

        y is one class per row (n,), 0 and 1 (n, classes) where a row may have several, or a list of classes per row.

        >>> X, y = np.repeat(np.eye(4, 8), 10, axis=0), np.repeat(np.arange(4), 10)
        >>> dmuh.Hashing("dmuh", n_bits=8, epochs=2).fit(X, y).train_codes_.n_bits
        8
        """
        features = np.ascontiguousarray(validate_data(self, X, dtype=np.float32, ensure_min_samples=2))
        config = configure(self._settings())
        if y is None and METHODS[self.method].needs_labels:
            raise InputError(f"{self.method} learns from labels: requires y to be passed, but the target y is None")
        columns = None if y is None else LabelColumns.of(y)
        labels = np.zeros((len(features), 0), np.uint8) if columns is None else columns.matrix(y)
        _check_lengths(features, labels)
        data = Dataset("features", features, labels, tuple(str(k) for k in range(labels.shape[1])))
        none = np.empty(0, np.int64)
        devices = range(torch.cuda.device_count())
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices):  # the caller's chance stays
            split = Split(np.arange(len(data)), none, none, none)
            run = train(config, Path(folder) / "run", dataset=data, split=split, progress=False)
            self.network_ = TorchNetwork(*load_networks(run.load_model()))
        self.train_codes_ = Codes.from_outputs(self.network_.run(features)["outputs"])
        self.train_labels_ = None if columns is None else labels
        self.classes_ = None if columns is None else columns.classes
        self._columns, self._digest = columns, _digest(features)
        self._n_features_out = self.train_codes_.n_bits
        return self

    def project(self, X: Any) -> NDArray[np.float32]:
        """Return the real outputs (n, n_bits), whose signs are the codes.

        >>> X = np.repeat(np.eye(4, 8), 10, axis=0)
        >>> hashing = dmuh.Hashing("itq", n_bits=4).fit(X)
        >>> np.array_equal(hashing.project(X) >= 0, hashing.transform(X))
        True
        """
        return self._run(X)["outputs"]

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Return the codes of features (n, n_features) as an array of 0 and 1: uint8 (n, n_bits).

        >>> X = np.repeat(np.eye(4, 8), 10, axis=0)
        >>> dmuh.Hashing("itq", n_bits=4).fit_transform(X).dtype
        dtype('uint8')
        """
        return self.codes(X).unpack()

    def codes(self, X: Any) -> Codes:
        """Return the codes of features (n, n_features), packed, with their uncertainty where the method has one.

        >>> X = np.repeat(np.eye(4, 8), 10, axis=0)
        >>> codes = dmuh.Hashing("itq", n_bits=4).fit(X).codes(X)
        >>> dmuh.HammingIndex().add(codes)
        HammingIndex(40 codes of 4 bits)
        """
        result = self._run(X)
        return Codes.from_outputs(result["outputs"], result.get("uncertainty"))

    def score(self, X: Any, y: Any) -> float:
        """Return the MAP of features (n, n_features) that search the training data by their codes, 0 to 1.

        Rows that share a label are relevant; the ranking is by Hamming distance, over all training rows, in the exact
        mean over all orders of equal distances. If X is the training data, no row finds itself.

        >>> X, y = np.repeat(np.eye(4, 8), 10, axis=0), np.repeat(np.arange(4), 10)
        >>> 0.5 < dmuh.Hashing("itq", n_bits=8).fit(X, y).score(X, y) <= 1
        True
        """
        check_is_fitted(self, "network_")
        if self._columns is None or self.train_labels_ is None:
            raise InputError("score compares labels, but fit was called without y: call fit(X, y)")
        features = np.ascontiguousarray(validate_data(self, X, dtype=np.float32, reset=False))
        labels = self._columns.matrix(y)
        _check_lengths(features, labels)
        query = Codes.from_outputs(self.network_.run(features)["outputs"])
        total, relevant = pairs.count(query, self.train_codes_, labels, self.train_labels_)
        if _digest(features) == self._digest:
            total[:, 0] -= 1
            relevant[:, 0] -= (labels & self.train_labels_).any(axis=1)
        return float(expected.average_precision(total, relevant, len(self.train_codes_), by_retrieved=False).mean())

    def _run(self, X: Any) -> dict[str, NDArray[np.float32]]:
        check_is_fitted(self, "network_")
        features = validate_data(self, X, dtype=np.float32, reset=False)
        return self.network_.run(np.ascontiguousarray(features))

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the run that `fit` makes, or raise if the method does not have one that was given."""
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise ConfigError(unknown("method", str(self.method), METHODS))
        given = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        for name in given:
            if name not in options_of(self.method):
                owners = ", ".join(method for method in METHODS if name in options_of(method))
                raise ConfigError(f"{self.method} has no parameter {name}, which is for {owners}")
        given |= {"bits": self.n_bits, "seed": self.seed}
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
        fixed = {"dataset": "features", "method": self.method, "validation": 0.0, "evaluate_every": _MEASURED_ONCE}
        return plain | fixed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        method = METHODS.get(self.method) if isinstance(self.method, str) else None
        tags.target_tags.required = method is not None and method.needs_labels
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclasses.dataclass(frozen=True)
class LabelColumns:
    """Which class each column of a label matrix stands for, and whether labels are given as such a matrix."""

    classes: NDArray[Any]
    as_matrix: bool

    @classmethod
    def of(cls, y: Any) -> "LabelColumns":
        """Read the classes off labels in any form that `Hashing.fit` takes."""
        labels = _label_array(y)
        if _is_zero_one(labels):
            return cls(np.arange(labels.shape[1]), True)
        return cls(np.unique(_row_and_class(labels)[1]), False)

    def matrix(self, y: Any) -> NDArray[np.uint8]:
        """Return labels 0/1 (n, classes) from labels of the same form; classes that are not among these are left out.

        Labels of another form, or none of whose classes is known, are refused.
        """
        labels = _label_array(y)
        if self.as_matrix:
            if not _is_zero_one(labels) or labels.shape[1] != len(self.classes):
                raise InputError(f"y must be 0 and 1 (n, {len(self.classes)}), as for fit, got shape {labels.shape}")
            return labels.astype(np.uint8)
        rows, found = _row_and_class(labels)
        known = np.isin(found, self.classes)
        if len(found) and not known.any():
            raise InputError(f"none of the classes in y was there when fitting, got {found.tolist()[0]!r}")
        matrix = np.zeros((len(labels), len(self.classes)), np.uint8)
        matrix[rows[known], np.searchsorted(self.classes, found[known])] = 1
        return matrix


def _label_array(y: Any) -> NDArray[Any]:
    """Return labels as an array: (n,) of classes or of lists of classes, or (n, classes) of 0 and 1."""
    try:
        labels = np.asarray(y.toarray() if scipy.sparse.issparse(y) else y)
    except ValueError:  # lists of different lengths
        labels = _array_of_lists(y)
    if labels.dtype.kind in "fc" and not (np.isfinite(labels) & (labels == np.trunc(labels.real))).all():
        raise InputError("labels must be classes: an unknown label type, numbers that are not whole, was given")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and not _is_zero_one(labels) and isinstance(y, list | tuple):
        labels = _array_of_lists(y)
    if labels.ndim != 1 and not _is_zero_one(labels):
        raise InputError(
            "labels must be classes (n,), 0 and 1 (n, classes) or a list of classes per row, "
            f"got an array of shape {labels.shape}"
        )
    return labels


def _array_of_lists(y: Any) -> NDArray[Any]:
    lists = np.empty(len(y), object)
    for row, classes in enumerate(y):
        lists[row] = classes
    return lists


def _is_zero_one(labels: NDArray[Any]) -> bool:
    return labels.ndim == 2 and labels.dtype.kind in "biuf" and bool(np.isin(labels, (0, 1)).all())


def _row_and_class(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the row and the class of every label (n_labels,) of classes or lists of classes (n,)."""
    if labels.dtype != object:
        return np.arange(len(labels)), labels

    def pairs_of() -> Iterator[tuple[int, Any]]:
        for row, classes in enumerate(labels):
            several = isinstance(classes, list | tuple | set | frozenset | np.ndarray)
            yield from ((row, name) for name in (classes if several else [classes]))

    found = list(pairs_of())
    return np.array([row for row, _ in found], np.int64), np.array([name for _, name in found])


def _check_lengths(features: NDArray[Any], labels: NDArray[Any]) -> None:
    if len(labels) != len(features):
        raise InputError(f"X has {len(features)} rows but y has {len(labels)}: inconsistent numbers of samples")


def _digest(features: NDArray[np.float32]) -> tuple[tuple[int, ...], bytes]:
    """Return what tells these features from any others."""
    return features.shape, hashlib.blake2b(features.data).digest()


def _refuse_unknown(names: dict[str, Any]) -> None:
    known = ["method", "n_bits", "seed", *OPTIONS]
    for name in names:
        if name not in known:
            raise InputError(unknown("parameter", name, known))


def _signature() -> inspect.Signature:
    """Return the constructor's signature with all options in it, which scikit-learn reads the parameters from."""
    given = inspect.signature(Hashing.__init__).parameters.values()
    named = [parameter for parameter in given if parameter.kind is not parameter.VAR_KEYWORD]
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in OPTIONS]
    return inspect.Signature([*named, *options])


Hashing.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
