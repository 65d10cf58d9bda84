"""Codes by which pairs of images are found that are worth a closer look: of their features and of their pictures."""

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.images import GREY_SIDE
from dmuh.index.bits import as_words

FEATURE_BITS = 256
_WAVES = 8  # down and across; 64 bits, one of which, the mean, is always 0
_AT_ONCE = 8192  # images
_SEED = 19  # of the rotation


def feature_words(
    vectors: NDArray[np.float32], mean: NDArray[np.float32], n_bits: int = FEATURE_BITS
) -> NDArray[np.uint64]:
    """Return codes of features (n, d) as words uint64 (n_bits / 64, n): on which side of random planes they lie.

    The planes go through the mean (d,) of the features, where bits halve them; two bits differ the more often the
    larger the angle between the features is.
    """
    rng = np.random.default_rng(_SEED)
    planes = rng.standard_normal((vectors.shape[1], n_bits), np.float32)
    offset = mean @ planes
    parts = [vectors[n : n + _AT_ONCE] @ planes > offset for n in range(0, len(vectors), _AT_ONCE)]
    bits = np.concatenate([np.empty((0, n_bits), np.bool_), *parts])
    words: NDArray[np.uint64] = as_words(Codes(np.packbits(bits, axis=1, bitorder="little"), n_bits))
    return words


def picture_words(greys: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return codes of pictures (n, 32, 32) as words uint64 (8, 1, n): as they are, turned and mirrored.

    Bits are the signs of the 8 × 8 slowest waves of the picture (Zauner 2010), without its mean. To mirror a picture
    changes the sign of every other wave, to turn it changes rows for columns too, so one picture gives all eight.
    """
    side = np.arange(GREY_SIDE) + 0.5
    waves = np.cos(np.pi / GREY_SIDE * np.arange(_WAVES)[:, None] * side).astype(np.float32)
    alternating = np.where(np.arange(_WAVES) % 2, -1, 1).astype(np.float32)
    words = np.empty((8, 1, len(greys)), np.uint64)
    for n in range(0, len(greys), _AT_ONCE):
        part = np.matmul(np.matmul(waves, greys[n : n + _AT_ONCE].astype(np.float32)), waves.T)
        part[:, 0, 0] = 0
        for place in range(8):
            turned = part.transpose(0, 2, 1) if place & 4 else part
            signs = turned * (alternating if place & 1 else 1) * (alternating[:, None] if place & 2 else 1)
            packed = np.packbits((signs > 0).reshape(len(part), -1), axis=1, bitorder="little")
            words[place, 0, n : n + _AT_ONCE] = packed.view("<u8")[:, 0]
    return words
