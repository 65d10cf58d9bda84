"""features: embeddings that people bring, to be turned into codes.

A folder with features.npy and labels.npy, or an .npz file with both. Features are a matrix (N, n_features) of numbers,
labels class numbers or names (N,), or 0 and 1 (N, classes). Nothing in these files can run.
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets.base import Dataset, one_hot
from dmuh.errors import DataError


def load_features(source: Path) -> Dataset:
    """Read features and labels; a .npy file alone, or a folder without labels, gives vectors without labels."""
    if source.is_dir():
        if not (source / "features.npy").is_file():
            raise DataError(f"{source} holds no features.npy")
        features, labels = _read(source / "features.npy"), None
        if (source / "labels.npy").is_file():
            labels = _read(source / "labels.npy")
    else:
        content = _read(source)
        if isinstance(content, np.ndarray):
            features, labels = content, None
        elif "features" not in content:
            raise DataError(f"{source} has no array named features, it has {', '.join(content) or 'none'}")
        else:
            features, labels = content["features"], content.get("labels")
    vectors = _vectors(features, source)
    if labels is None:
        return Dataset("features", vectors, np.zeros((len(vectors), 0), np.uint8), ())  # type: ignore[arg-type]
    if labels.ndim == 0 or len(labels) != len(vectors):
        raise DataError(f"{source} has {len(vectors):,} feature vectors but {labels.size:,} labels")
    hot, classes = _labels(labels, source)
    return Dataset("features", vectors, hot, classes)  # type: ignore[arg-type]


def _read(file: Path) -> Any:
    try:
        if file.suffix == ".npy":
            return np.load(file, allow_pickle=False, mmap_mode="r")
        with file.open("rb") as handle:
            content = np.load(handle, allow_pickle=False)
            return content if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file} is not a NumPy file of plain arrays: {error}") from error


def _vectors(features: NDArray[Any], source: Path) -> NDArray[np.float32]:
    if features.ndim != 2 or features.dtype.kind not in "fiu" or 0 in features.shape:
        raise DataError(
            f"{source}: features must be a matrix of numbers (images, features), got {features.dtype} of shape "
            f"{features.shape}"
        )
    with np.errstate(over="ignore"):  # what is too large for a float is not finite, and refused below
        vectors = features if features.dtype == np.float32 else features.astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        raise DataError(f"{source}: {len(broken):,} feature vectors are not finite, the first is row {broken[0]}")
    return vectors


def _labels(labels: NDArray[Any], source: Path) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    if labels.ndim == 1 and (labels.dtype.kind in "uU" or (labels.dtype.kind == "i" and labels.min() >= 0)):
        names, numbers = np.unique(labels, return_inverse=True)
        return one_hot(numbers), tuple(str(name) for name in names.tolist())
    if labels.ndim == 2 and labels.dtype.kind in "biuf" and np.isin(labels, (0, 1)).all():
        return labels.astype(np.uint8), tuple(str(k) for k in range(labels.shape[1]))
    raise DataError(
        f"{source}: labels must be class numbers or names (images,), or 0 and 1 (images, classes), got "
        f"{labels.dtype} of shape {labels.shape}"
    )
