"""The passes over pairs of images in numpy: for few pairs, which must not wait for a compiler, and to test by."""

import numpy as np
from numpy.typing import NDArray

from dmuh.duplicates.windows import CELLS, one_dimensional, symmetries, tilts

Pairs = NDArray[np.int64]
_AT_ONCE = 512  # pairs


def near_codes(
    variants: NDArray[np.uint64], words: NDArray[np.uint64], radius: int, offset: int, first: int, last: int
) -> Pairs:
    """Return the pairs (m, 2) of rows first…last and codes within a radius, as `kernels.near_codes` does."""
    found = [np.empty((0, 2), np.int64)]
    for i in range(first, last):
        begin = 0 if offset < 0 else min(i + offset, words.shape[1])
        away = np.bitwise_count(words[None, :, begin:] ^ variants[:, :, i, None]).sum(axis=1, dtype=np.int64)
        near = np.flatnonzero(away.min(axis=0) <= radius) + begin
        found.append(np.column_stack([np.full(len(near), i), near]))
    return np.concatenate(found)


def cosines(left: NDArray[np.float32], right: NDArray[np.float32], pairs: Pairs) -> NDArray[np.float32]:
    """Return the products (m,) of rows of left (a, d) and right (b, d) at pairs (m, 2)."""
    parts = [pairs[n : n + _AT_ONCE] for n in range(0, len(pairs), _AT_ONCE)]
    products = [np.einsum("nd,nd->n", left[part[:, 0]], right[part[:, 1]]) for part in parts]
    return np.concatenate([np.empty(0, np.float32), *products])


def alignments(
    left: NDArray[np.float32], right: NDArray[np.float32], pairs: Pairs, floor: float
) -> NDArray[np.float32]:
    """Return for each pair (m,) the largest correlation of one picture and a window of the other, turned or not."""
    best = np.empty(len(pairs), np.float32)
    for n in range(0, len(pairs), _AT_ONCE):
        part = slice(n, n + _AT_ONCE)
        one, other = (_windows(side[pairs[part, place]], floor) for place, side in enumerate((left, right)))
        forth, back = _products(one, other), _products(other, one)
        best[part] = np.maximum(forth.max(axis=(1, 2)), back.max(axis=(1, 2)))
    return best


def _windows(pictures: NDArray[np.float32], floor: float) -> NDArray[np.float32]:
    """Return the windows (n, k, cells²) of pictures (n, p, p), the tilted whole at the end, each without its means.

    The mean of each row and column goes, since a bright sky above dark land says little; what is left has length 1.
    """
    operators, windows = one_dimensional()
    rows = np.matmul(operators[None], pictures[:, None])  # (n, o, cells, p)
    cells = np.matmul(rows[:, windows[:, 0]], operators[windows[:, 1]].transpose(0, 2, 1)[None])
    tilted, shares = tilts()
    flat = cells.reshape(len(pictures), len(windows), -1)
    slanting = (flat[:, 0][:, tilted] * shares).sum(axis=3)
    square = np.concatenate([flat, slanting], axis=1).reshape(len(pictures), -1, CELLS, CELLS)
    square = square - square.mean(axis=3, keepdims=True)
    square = square - square.mean(axis=2, keepdims=True)
    flat = square.reshape(*square.shape[:2], -1)
    normed: NDArray[np.float32] = flat / np.maximum(np.linalg.norm(flat, axis=2, keepdims=True), floor)
    return normed


def _products(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the correlations (n, k, 8) of each window of the one with the whole other, turned and mirrored."""
    turned = other[:, 0][:, symmetries()]  # (n, 8, cells²)
    products: NDArray[np.float32] = np.matmul(one, turned.transpose(0, 2, 1))
    return products
