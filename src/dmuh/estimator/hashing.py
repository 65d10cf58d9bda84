"""Every method for images as one estimator on a matrix of features."""

import hashlib
import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dmuh.codes import Codes
from dmuh.config import keys_of
from dmuh.datasets import Dataset
from dmuh.encoder.calibration import Calibration
from dmuh.errors import ConfigError, InputError, unknown
from dmuh.estimator.labels import LabelColumns
from dmuh.methods import METHODS, configure, methods_for
from dmuh.metrics import expected, pairs
from dmuh.network import TorchNetwork, load_networks
from dmuh.protocols import Split
from dmuh.trainer import train

# Settings of a run that matter for a matrix of features; all others are about images, folders and splits.
_EVERY_METHOD = ("uncertainty", "device")
_DEEP_METHODS = (
    "epochs", "batch_size", "optimizer", "lr", "lr_final", "schedule", "warmup_epochs", "sgd_momentum", "weight_decay",
    "clip", "kernel", "hidden", "dropout", "uncertainty_alpha", "encoder",
)  # fmt: skip
_MEASURED_ONCE = 2**31  # epochs between two measurements of the training MAP, which nobody sees here


def options_of(method: str) -> list[str]:
    """Return the parameters that a method has besides `method`, `n_bits` and `seed`: its own options first."""
    shallow = METHODS[method].kind == "shallow"
    return [*keys_of(METHODS[method].Options), *(() if shallow else _DEEP_METHODS), *_EVERY_METHOD]


OF_IMAGES = methods_for(texts=False)
OPTIONS = list(dict.fromkeys(name for method in OF_IMAGES for name in options_of(method)))


class Hashing(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns features (n, n_features) into binary codes, by any method of `dmuh list --methods`.

    Parameters: method, its name; n_bits, the length of the codes; seed, of everything that is left to chance; and the
    options of the method and of its training by their names, such as Hashing("sdh", anchors=3000) or
    Hashing("dmuh", epochs=60, lr=0.05); `dmuh list --settings` explains them. One that is None or not given has the
    method's own default.

    After `fit`: train_codes_ and train_labels_, what `score` searches (labels 0/1 (n, classes), None if fitted without
    y); classes_, the class of each of their columns; n_features_in_ and, from a DataFrame, feature_names_in_.

    >>> X, y = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3
    >>> hashing = dmuh.Hashing("sdh", n_bits=4, anchors=30)
    >>> hashing.fit_transform(X, y).shape
    (60, 4)
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(hashing, {"anchors": [10, 30], "rounds": [1, 5]}, cv=3).fit(X, y)
    >>> sorted(search.best_params_)
    ['anchors', 'rounds']
    """

    def __init__(self, method: str = "dmuh", n_bits: int = 32, seed: int = 0, **options: Any) -> None:
        refuse_unknown(options)
        self.method = method
        self.n_bits = n_bits
        self.seed = seed
        for name in OPTIONS:
            setattr(self, name, options.get(name))

    def set_params(self, **params: Any) -> "Hashing":
        """Set parameters by their names; return itself.

        >>> dmuh.Hashing("itq").set_params(n_bits=8, iterations=20)
        Hashing(iterations=20, method='itq', n_bits=8)
        """
        refuse_unknown(params)
        return cast("Hashing", super().set_params(**params))

    def fit(self, X: Any, y: Any = None) -> "Hashing":
        """Learn from features (n, n_features) and labels; methods that need no labels (itq) also from y=None.

        y is one class per row (n,), 0 and 1 (n, classes) where a row may have several, or a list of classes per row.

        >>> X = np.random.default_rng(0).normal(size=(60, 8))
        >>> dmuh.Hashing("sdh", n_bits=4).fit(X, [["cat"], ["cat", "dog"], ["cow"]] * 20).classes_
        array(['cat', 'cow', 'dog'], dtype='<U3')
        """
        features = np.ascontiguousarray(validate_data(self, X, dtype=np.float32, ensure_min_samples=2))
        config = configure(settings_of(self, OF_IMAGES, OPTIONS))
        if y is None and METHODS[self.method].needs_labels:
            raise InputError(f"{self.method} learns from labels: requires y to be passed, but the target y is None")
        columns = None if y is None else LabelColumns.of(y)
        labels = np.zeros((len(features), 0), np.uint8) if columns is None else columns.matrix(y)
        check_lengths(features, labels)
        data = Dataset("features", features, labels, tuple(str(k) for k in range(labels.shape[1])))
        none = np.empty(0, np.int64)
        devices = range(torch.cuda.device_count())
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices):  # the caller's chance stays
            split = Split(np.arange(len(data)), none, none, none)
            run = train(config, Path(folder) / "run", dataset=data, split=split, progress=False)
            model = run.load_model()
            self.network_ = TorchNetwork(*load_networks(model))
            self.calibration_ = Calibration.of_card(model.metadata)
        self.train_codes_ = Codes.from_outputs(self.network_.run(features)["outputs"])
        self.train_labels_ = None if columns is None else labels
        self.classes_ = None if columns is None else columns.classes
        self._columns, self._digest = columns, _digest(features)
        self._n_features_out = self.train_codes_.n_bits
        return self

    def project(self, X: Any) -> NDArray[np.float32]:
        """Return the real outputs (n, n_bits), whose signs are the codes.

        >>> X = np.random.default_rng(0).normal(size=(60, 8))
        >>> hashing = dmuh.Hashing("itq", n_bits=4).fit(X)
        >>> np.array_equal(hashing.project(X) >= 0, hashing.transform(X))
        True
        """
        return self._run(X)["outputs"]

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Return the codes of features (n, n_features) as an array of 0 and 1: uint8 (n, n_bits).

        >>> X = np.random.default_rng(0).normal(size=(60, 8))
        >>> bits = dmuh.Hashing("itq", n_bits=4).fit(X).transform(X)
        >>> bits.shape, bits.dtype, np.unique(bits)
        ((60, 4), dtype('uint8'), array([0, 1], dtype=uint8))
        """
        return self.codes(X).unpack()

    def codes(self, X: Any) -> Codes:
        """Return the codes of features (n, n_features), packed, with the probability that each bit turns over.

        >>> X, y = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3
        >>> codes = dmuh.Hashing("dmuh", n_bits=16, epochs=2).fit(X, y).codes(X)
        >>> codes.bits.shape, codes.uncertainty.shape
        ((60, 2), (60, 16))
        >>> dmuh.HammingIndex().add(codes).search(codes[:1], k=1, ranking="hamming").distances
        array([[0]], dtype=int32)
        """
        results = self._run(X)
        return self.calibration_.codes(results)

    def score(self, X: Any, y: Any) -> float:
        """Return the MAP of features (n, n_features) that search the training data by their codes, 0 to 1.

        Rows that share a label are relevant; the ranking is by Hamming distance, over all training rows, in the exact
        mean over all orders of equal distances. If X is the training data, no row finds itself.

        >>> y = np.arange(60) % 3
        >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 5 * np.eye(3, 8)[y]
        >>> dmuh.Hashing("sdh", n_bits=8).fit(X[:30], y[:30]).score(X[30:], y[30:]) > 0.8
        True
        """
        check_is_fitted(self, "network_")
        if self._columns is None or self.train_labels_ is None:
            raise InputError("score compares labels, but fit was called without y: call fit(X, y)")
        features = np.ascontiguousarray(validate_data(self, X, dtype=np.float32, reset=False))
        labels = self._columns.matrix(y)
        check_lengths(features, labels)
        query = Codes.from_outputs(self.network_.run(features)["outputs"])
        total, relevant = pairs.count(query, self.train_codes_, labels, self.train_labels_)
        if _digest(features) == self._digest:
            total[:, 0] -= 1
            relevant[:, 0] -= (labels & self.train_labels_).any(axis=1)
        return float(expected.average_precision(total, relevant, len(self.train_codes_), most=0).mean())

    def _run(self, X: Any) -> dict[str, NDArray[np.float32]]:
        check_is_fitted(self, "network_")
        features = validate_data(self, X, dtype=np.float32, reset=False)
        return self.network_.run(np.ascontiguousarray(features))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        method = METHODS.get(self.method) if isinstance(self.method, str) else None
        tags.target_tags.required = method is not None and method.needs_labels
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def check_lengths(features: NDArray[Any], labels: NDArray[Any]) -> None:
    """Raise if features and labels are not of the same rows."""
    if len(labels) != len(features):
        raise InputError(f"X has {len(features)} rows but y has {len(labels)}: inconsistent numbers of samples")


def _digest(features: NDArray[np.float32]) -> tuple[tuple[int, ...], bytes]:
    """Return what tells these features from any others."""
    return features.shape, hashlib.blake2b(features.data).digest()


def refuse_unknown(names: dict[str, Any], options: Sequence[str] = ()) -> None:
    """Raise if one of the names is no parameter of an estimator with these options."""
    known = ["method", "n_bits", "seed", *(options or OPTIONS)]
    for name in names:
        if name not in known:
            raise InputError(unknown("parameter", name, known))


def settings_of(estimator: Any, methods: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the run that an estimator's `fit` makes, by one of these methods.

    Another method, or an option that the method does not have, is refused.
    """
    method = estimator.method
    if not isinstance(method, str) or method not in methods:
        raise ConfigError(unknown("method", str(method), methods))
    given = {name: getattr(estimator, name) for name in options if getattr(estimator, name) is not None}
    for name in given:
        if name not in options_of(method):
            owners = ", ".join(other for other in methods if name in options_of(other))
            raise ConfigError(f"{method} has no parameter {name}, which is for {owners}")
    given |= {"bits": estimator.n_bits, "seed": estimator.seed}
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
    return plain | {"dataset": "features", "method": method, "validation": 0.0, "evaluate_every": _MEASURED_ONCE}


def signature_with(estimator: type[Any], options: Sequence[str]) -> inspect.Signature:
    """Return a constructor's signature with all options in it, which scikit-learn reads the parameters from."""
    given = inspect.signature(estimator.__init__).parameters.values()
    named = [parameter for parameter in given if parameter.kind is not parameter.VAR_KEYWORD]
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in options]
    return inspect.Signature([*named, *own])


Hashing.__init__.__signature__ = signature_with(Hashing, OPTIONS)  # type: ignore[attr-defined]
