"""Every method for images and texts as one estimator on two matrices of features."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.encoder.calibration import Calibration
from dmuh.errors import InputError
from dmuh.estimator.hashing import check_lengths, options_of, refuse_unknown, settings_of, signature_with
from dmuh.estimator.labels import LabelColumns
from dmuh.methods import METHODS, configure, methods_for
from dmuh.metrics import evaluate
from dmuh.network import TorchNetwork, load_networks, load_text_networks
from dmuh.protocols import Split
from dmuh.trainer import train

OF_BOTH = methods_for(texts=True)
OPTIONS_OF_BOTH = list(dict.fromkeys(name for method in OF_BOTH for name in options_of(method)))


class CrossModalHashing(BaseEstimator):  # type: ignore[misc]
    """Turns features of images and features of texts into binary codes of one Hamming space.

    Parameters: method, one of `dmuh list --methods` for images and texts; n_bits, the length of the codes; seed; and
    the options of the method and of its training by their names, as for `Hashing`. Rows of the two matrices belong
    together: row n of the texts is about row n of the images.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> images, texts = (rng.normal(size=(60, width)) + 4 * np.eye(3, width)[y] for width in (8, 5))
    >>> hashing = dmuh.CrossModalHashing("scm", n_bits=4).fit(images, texts, y)
    >>> hashing.transform(images).shape, hashing.transform_texts(texts).shape
    ((60, 4), (60, 4))
    >>> hashing.score(images, texts, y) > 0.6  # MAP, the mean of both directions
    True
    """

    def __init__(self, method: str = "dmuh-x", n_bits: int = 32, seed: int = 0, **options: Any) -> None:
        refuse_unknown(options, OPTIONS_OF_BOTH)
        self.method = method
        self.n_bits = n_bits
        self.seed = seed
        for name in OPTIONS_OF_BOTH:
            setattr(self, name, options.get(name))

    def fit(self, X: Any, Z: Any, y: Any = None) -> "CrossModalHashing":
        """Learn from features of images X (n, n_features) and of their texts Z (n, n_text_features), and labels.

        y is as for `Hashing.fit`; cca-itq needs none.

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> dmuh.CrossModalHashing("cca-itq", n_bits=4).fit(X, Z)
        CrossModalHashing(method='cca-itq', n_bits=4)
        """
        images: Any = _matrix(X)
        texts = _matrix(Z)
        config = configure(settings_of(self, OF_BOTH, OPTIONS_OF_BOTH))
        if y is None and METHODS[self.method].needs_labels:
            raise InputError(f"{self.method} learns from labels: requires y to be passed, but the target y is None")
        columns = None if y is None else LabelColumns.of(y)
        labels = np.zeros((len(images), 0), np.uint8) if columns is None else columns.matrix(y)
        check_lengths(images, labels)
        classes = tuple(str(k) for k in range(labels.shape[1]))
        data = Dataset("features", images, labels, classes, texts=texts)
        none = np.empty(0, np.int64)
        devices = range(torch.cuda.device_count())
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices):  # the caller's chance stays
            split = Split(np.arange(len(data)), none, none, none)
            model = train(config, Path(folder) / "run", dataset=data, split=split, progress=False).load_model()
        about = model.metadata
        self.network_, self.text_network_ = (TorchNetwork(*load(model)) for load in (load_networks, load_text_networks))
        self.calibration_ = Calibration.of_card(about)
        self.text_calibration_ = Calibration.of_texts(about)
        self.n_features_in_, self.n_text_features_in_ = images.shape[1], texts.shape[1]
        self.classes_ = None if columns is None else columns.classes
        self._columns, self._train_labels = columns, labels
        self._train_codes = self.codes(images).plain(), self.codes_of_texts(texts).plain()
        return self

    def codes(self, X: Any) -> Codes:
        """Return the codes of features of images, with the probability that each bit turns over.

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> dmuh.CrossModalHashing("cca-itq", n_bits=4).fit(X, Z).codes(X).n_bits
        4
        """
        check_is_fitted(self, "network_")
        return self.calibration_.codes(self.network_.run(_matrix(X, self.n_features_in_)))

    def codes_of_texts(self, Z: Any) -> Codes:
        """Return the codes of features of texts, with the probability that each bit turns over.

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> hashing = dmuh.CrossModalHashing("cca-itq", n_bits=4).fit(X, Z)
        >>> index = dmuh.HammingIndex().add(hashing.codes(X))  # texts search images
        >>> index.search(hashing.codes_of_texts(Z[:2]), k=3).ids.shape
        (2, 3)
        """
        check_is_fitted(self, "text_network_")
        return self.text_calibration_.codes(self.text_network_.run(_matrix(Z, self.n_text_features_in_)))

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Return the codes of features of images as 0 and 1: uint8 (n, n_bits).

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> dmuh.CrossModalHashing("cca-itq", n_bits=4).fit(X, Z).transform(X).shape
        (60, 4)
        """
        return self.codes(X).unpack()

    def transform_texts(self, Z: Any) -> NDArray[np.uint8]:
        """Return the codes of features of texts as 0 and 1: uint8 (n, n_bits).

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> dmuh.CrossModalHashing("cca-itq", n_bits=4).fit(X, Z).transform_texts(Z).shape
        (60, 4)
        """
        return self.codes_of_texts(Z).unpack()

    def score(self, X: Any, Z: Any, y: Any) -> float:
        """Return the MAP of texts among the training images and of images among the training texts: their mean.

        >>> X, Z = np.random.default_rng(0).normal(size=(60, 8)), np.random.default_rng(1).normal(size=(60, 5))
        >>> y = np.arange(60) % 3
        >>> 0 < dmuh.CrossModalHashing("scm", n_bits=4).fit(X, Z, y).score(X, Z, y) <= 1
        True
        """
        check_is_fitted(self, "network_")
        if self._columns is None:
            raise InputError("score compares labels, but fit was called without y: call fit(X, Z, y)")
        labels = self._columns.matrix(y)
        images, texts = self._train_codes
        maps = [
            evaluate(query.plain(), database, labels, self._train_labels, ks=(), ranking="hamming").map
            for query, database in ((self.codes_of_texts(Z), images), (self.codes(X), texts))
        ]
        return sum(maps) / 2


def _matrix(features: Any, width: int | None = None) -> NDArray[np.float32]:
    """Return features as a matrix float32, of this width if one is given."""
    matrix: NDArray[np.float32] = np.ascontiguousarray(check_array(features, dtype=np.float32))
    if width is not None and matrix.shape[1] != width:
        raise InputError(f"X has {matrix.shape[1]} features, but {width} were there when fitting")
    return matrix


CrossModalHashing.__init__.__signature__ = signature_with(CrossModalHashing, OPTIONS_OF_BOTH)  # type: ignore[attr-defined]
