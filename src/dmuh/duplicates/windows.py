"""Parts of a small picture, and how it looks tilted, turned and mirrored: what two pictures are aligned by."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from dmuh.images import GREY_SIDE

CELLS = 12  # a window is compared by its means over 12 × 12 cells
# The part of the width and height that a crop may have left, and at how many places it is looked for.
_SIZES = ((1.0, 1), (0.95, 2), (0.9, 3), (0.85, 4), (0.8, 5))
_TILTS = (-5, 5)  # degrees


@cache
def one_dimensional() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the operators float32 (o, cells, pixels) from a side of a picture to the cells of a part of it.

    Beside them, int64 (k, 2), which two of them make up each window: down and across. The first is the whole picture.
    """
    operators: list[NDArray[np.float32]] = []
    windows: list[tuple[int, int]] = []
    for size, places in _SIZES:
        numbers = range(len(operators), len(operators) + places)
        operators += [_operator(begin, begin + size) for begin in np.linspace(0, 1 - size, places)]
        windows += [(down, across) for down in numbers for across in numbers]
    return np.stack(operators), np.array(windows)


@cache
def taps() -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the same operators by what is not zero: the first pixel (o, cells), weights from there (o, cells, t)."""
    operators, _ = one_dimensional()
    most = int((operators > 0).sum(axis=2).max())
    first = np.minimum((operators > 0).argmax(axis=2), GREY_SIDE - most)
    return first, np.take_along_axis(operators, first[:, :, None] + np.arange(most), axis=2)


@cache
def symmetries() -> NDArray[np.int64]:
    """Return int64 (8, cells²): where each cell of a picture comes from when it is turned and mirrored."""
    square = np.arange(CELLS * CELLS).reshape(CELLS, CELLS)
    turned = [np.rot90(each, quarter) for each in (square, square.T) for quarter in range(4)]
    return np.stack([each.reshape(-1) for each in turned])


@cache
def tilts() -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return four cells (2, cells², 4) and their weights, of which each cell of a picture tilted a little is made."""
    middle = (CELLS - 1) / 2
    y, x = (each.reshape(-1) for each in np.mgrid[:CELLS, :CELLS] - middle)
    cells, weights = [], []
    for angle in np.deg2rad(_TILTS):
        across = np.clip(np.cos(angle) * x - np.sin(angle) * y + middle, 0, CELLS - 1)
        down = np.clip(np.sin(angle) * x + np.cos(angle) * y + middle, 0, CELLS - 1)
        left, top = (np.minimum(side.astype(np.int64), CELLS - 2) for side in (across, down))
        right_share, low_share = across - left, down - top
        first = top * CELLS + left
        cells.append(np.stack([first, first + 1, first + CELLS, first + CELLS + 1], axis=1))
        shares = [(1 - right_share) * (1 - low_share), right_share * (1 - low_share),
                  (1 - right_share) * low_share, right_share * low_share]  # fmt: skip
        weights.append(np.stack(shares, axis=1).astype(np.float32))
    return np.stack(cells), np.stack(weights)


def _operator(begin: float, end: float) -> NDArray[np.float32]:
    """Return the means (cells, pixels) of pixels over equal parts of a stretch of a side, which is 1 long."""
    edges = np.linspace(begin, end, CELLS + 1) * GREY_SIDE
    pixels = np.arange(GREY_SIDE)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    covered = np.where(covered > 1e-6, covered, 0)
    return np.asarray(covered / covered.sum(axis=1, keepdims=True), np.float32)
