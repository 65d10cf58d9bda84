"""Features in clusters, which the shallow methods are tried on."""

import itertools

import numpy as np


def clusters(n: int = 90, width: int = 16, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features float32 (n, width), and the class (n,) whose cluster each is of."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    rows = 2 * rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width)) + rng.normal(size=width)
    return rows.astype(np.float32), y


def falls(losses: list[float], tolerance: float = 1e-9) -> bool:
    """Whether no loss is higher than the one before, but by a rounding error."""
    return all(after <= before * (1 + tolerance) for before, after in itertools.pairwise(losses))


def random_signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 2, shape) * 2.0 - 1
