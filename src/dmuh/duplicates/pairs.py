"""Pairs of images that are worth a closer look, and how alike they are: by features, and by small grey pictures."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmuh.duplicates import plain
from dmuh.duplicates.codes import feature_words, picture_words
from dmuh.duplicates.windows import CELLS, one_dimensional, symmetries, taps, tilts
from dmuh.errors import InputError
from dmuh.images import GREY_SIDE
from dmuh.machine.workers import over_cores
from dmuh.progress import Counting, uncounted

FEATURE_RADIUS = 84  # of 256 bits: 99% of the edits of photographs with the least cosine are within it
PICTURE_RADIUS = 12  # of 63 bits: within it are 95% of the edits that move nothing, and 1 unrelated pair in 40,000
LEAST_COSINE = 0.74  # of features, unless the pictures' codes are near; 1 pair of photographs in 10,000 has it
# Weight and power of the pictures' correlation beside the cosine; chosen on 300 photographs and their edits. At 0.57,
# 98.7% of 26,000 edits of 2,000 other photographs were found, with 1 in 20,000 pairs wrong; at 0.51, 99.5% with 1 in
# 1,000 wrong (benchmarks/duplicates.py).
_WEIGHT, _POWER = 0.7, 8
AT_LEAST = 0.57
_FLAT = 2.0  # grey levels of deviation below which a picture says nothing
_ROWS = 256  # that are compared with all others before the next are
_PLAIN_CODES, _PLAIN_PAIRS = 300_000_000, 3_000  # what numpy does in about a second: less than a compiler takes


@dataclass(frozen=True, eq=False)
class Looks:
    """How n images look: features of length 1, float32 (n, d), and small grey pictures, uint8 (n, 32, 32)."""

    vectors: NDArray[np.float32]
    greys: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.greys.shape != (len(self.vectors), GREY_SIDE, GREY_SIDE):
            raise InputError(
                f"features must be (n, d) and pictures (n, {GREY_SIDE}, {GREY_SIDE}), got {self.vectors.shape} and "
                f"{self.greys.shape}"
            )

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True, eq=False)
class Compared:
    """Pairs of images, int64 (m, 2), and what was measured of each, float32 (m,).

    cosine   of their features
    aligned  the correlation of one picture and the other, turned, mirrored, tilted or a part of it: the largest
    """

    pairs: NDArray[np.int64]
    cosine: NDArray[np.float32]
    aligned: NDArray[np.float32]

    @property
    def likeness(self) -> NDArray[np.float32]:
        """How alike the images of each pair are, (m,): 1 if they are the same; most unrelated ones are below 0.4."""
        correlated = np.clip(self.aligned, 0, 1) ** _POWER
        return np.asarray(np.clip((self.cosine + _WEIGHT * correlated) / (1 + _WEIGHT), 0, 1), np.float32)

    def __getitem__(self, rows: NDArray[np.bool_]) -> "Compared":
        return Compared(self.pairs[rows], self.cosine[rows], self.aligned[rows])


def compare(
    looks: Looks, others: Looks | None = None, *, count: Counting = uncounted, compiled: bool | None = None
) -> Compared:
    """Return the pairs of images that may be duplicates, each once, in the order of their rows.

    Pairs are of two of the images, or, where there are others, of an image and one of the others. Candidates are found
    by codes of features and of pictures, and kept if the cosine of their features is not small or the pictures' codes
    are near. `compiled` chooses between kernels and numpy, which are left to the size of the work by default.
    """
    right = looks if others is None else others
    near = _near_pairs(looks, right, others is None, count, compiled)
    cosine = _cosines(looks.vectors, right.vectors, near, compiled)
    return Compared(near, cosine, _alignments(looks.greys, right.greys, near, compiled))


def confirm(
    left: NDArray[np.uint8], right: NDArray[np.uint8], pairs: NDArray[np.int64], cosine: NDArray[np.float32]
) -> Compared:
    """Return pairs (m, 2) of pictures (a, 32, 32) and (b, 32, 32), the cosine of whose features is known, compared."""
    return Compared(pairs, cosine, _alignments(left, right, pairs, None))


def near_features(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    least: float = LEAST_COSINE,
    *,
    compiled: bool | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the pairs (m, 2) of rows of left (a, d) and right (b, d) whose cosine (m,) is at least so much."""
    words, radius = _feature_words(left, right), FEATURE_RADIUS
    use_kernels = _worth(4 * len(left) * len(right), compiled)

    def near(first: int, last: int) -> NDArray[np.int64]:
        wide = _near_codes(*words, radius, -1, first, last, use_kernels)
        return wide[_cosines(left, right, wide, use_kernels) >= least]

    pairs = _by_blocks(len(left), near, lambda _: None)
    return pairs, _cosines(left, right, pairs, use_kernels)


def _near_pairs(
    left: Looks, right: Looks, same: bool, count: Counting, compiled: bool | None
) -> NDArray[np.int64]:  # fmt: skip
    """Return the candidates (m, 2), in order."""
    by_features = *_feature_words(left.vectors, right.vectors), FEATURE_RADIUS
    by_pictures = picture_words(left.greys), picture_words(right.greys)[0], PICTURE_RADIUS
    use_kernels = _worth(12 * len(left) * len(right), compiled)
    offset = 1 if same else -1

    def near(first: int, last: int) -> NDArray[np.int64]:
        wide = _near_codes(*by_features, offset, first, last, use_kernels)
        alike = wide[_cosines(left.vectors, right.vectors, wide, use_kernels) >= LEAST_COSINE]
        both = np.concatenate([alike, _near_codes(*by_pictures, offset, first, last, use_kernels)])
        return np.unique(both, axis=0)

    with count("comparing images", len(left)) as advance:
        return _by_blocks(len(left), near, advance)


def _feature_words(
    left: NDArray[np.float32], right: NDArray[np.float32]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:  # fmt: skip
    mean = np.asarray(right.mean(axis=0, dtype=np.float64), np.float32)
    words = feature_words(right, mean)
    return (words if left is right else feature_words(left, mean))[None], words


def _worth(words: int, compiled: bool | None) -> bool:
    """Return whether kernels compare so many words."""
    return words > _PLAIN_CODES if compiled is None else compiled


def _by_blocks(
    n: int, work: Callable[[int, int], NDArray[np.int64]], advance: Callable[[int], None]
) -> NDArray[np.int64]:
    """Return what work(first, last) gives for blocks of n rows, in their order."""
    found: dict[int, NDArray[np.int64]] = {}
    blocks = [(first, min(first + _ROWS, n)) for first in range(0, n, _ROWS)]
    _share(lambda block: work(*blocks[block]), len(blocks), found, lambda block: advance(int(np.ptp(blocks[block]))))
    return np.concatenate([np.empty((0, 2), np.int64), *(found[block] for block in range(len(blocks)))])


def _share(
    work: Callable[[int], NDArray[np.int64]],
    n_blocks: int,
    found: dict[int, NDArray[np.int64]],
    advance: Callable[[int], None],
) -> None:
    """Have the cores work on blocks, each on whichever is next; an error or Ctrl-C in one ends all."""
    left, lock, stopped = iter(range(n_blocks)), threading.Lock(), threading.Event()

    def share(first: int, last: int) -> None:
        del first, last
        try:
            while not stopped.is_set():
                with lock:
                    block = next(left, None)
                if block is None:
                    return
                found[block] = work(block)
                with lock:
                    advance(block)
        except BaseException:
            stopped.set()
            raise

    over_cores(share, n_blocks)


def _near_codes(
    variants: NDArray[np.uint64], words: NDArray[np.uint64], radius: int, offset: int, first: int, last: int,
    compiled: bool,
) -> NDArray[np.int64]:  # fmt: skip
    if not compiled:
        return plain.near_codes(variants, words, radius, offset, first, last)
    from dmuh.duplicates import kernels

    found: NDArray[np.int64] = kernels.near_codes(variants, words, radius, offset, first, last)
    return found


def _cosines(
    left: NDArray[np.float32], right: NDArray[np.float32], pairs: NDArray[np.int64], compiled: bool | None
) -> NDArray[np.float32]:
    if not (len(pairs) > _PLAIN_PAIRS if compiled is None else compiled):
        return plain.cosines(left, right, pairs)
    from dmuh.duplicates import kernels

    result = np.empty(len(pairs), np.float32)
    kernels.cosines(left, right, pairs, result)
    return result


def _alignments(
    left: NDArray[np.uint8], right: NDArray[np.uint8], pairs: NDArray[np.int64], compiled: bool | None
) -> NDArray[np.float32]:
    pictures = left.astype(np.float32), right.astype(np.float32)
    floor = _FLAT * CELLS
    if not (len(pairs) > _PLAIN_PAIRS if compiled is None else compiled):
        return plain.alignments(*pictures, pairs, floor)
    from dmuh.duplicates import kernels

    aligned = np.empty(len(pairs), np.float32)
    first_pixels, weights = taps()
    windows, tilted, least = one_dimensional()[1], tilts(), np.float32(floor)

    def work(first: int, last: int) -> None:
        kernels.alignments(
            *pictures, pairs, symmetries(), first_pixels, weights, windows, *tilted, least, first, last, aligned
        )

    over_cores(work, len(pairs))
    return aligned
