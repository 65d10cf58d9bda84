"""Labels as people who use scikit-learn have them, as one 0/1 matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dmuh.errors import InputError


@dataclass(frozen=True)
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
