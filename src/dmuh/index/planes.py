"""Soft distances by bits: what a query needs to weigh whole words of codes at once.

For a given query, each bit of a code adds a whole number from 0 to 2·UNITS to the soft distance, which depends on the
bit and its level alone. Written in binary, this number has DIGITS digits, and each digit is a function of the code's
bit c and of the bits l₀ and l₁ of its level: an exclusive or of products, m ^ (m_c & c) ^ (m_l & l₀) ^ (m_cl & c & l₀)
and so on. The m are bits that the query decides, and pack into words as codes do. So the j-th digits of all bits of a
code are a few logical operations on words, and the distance is the sum over j of 2^j times their ones.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import Words, as_words, packed_words
from dmuh.index.soft import UNITS, pair_weights

DIGITS = (2 * UNITS).bit_length()  # of what a bit adds


def planes_of(codes: Codes) -> Words:
    """Return codes and levels as words (1 + sure, w, n): the bits, then the planes of their levels."""
    planes = [as_words(codes)]
    if codes.levels is not None:
        planes += [packed_words(codes.levels[:, plane], codes.n_bits) for plane in range(codes.sure)]
    return np.stack(planes)


def plane_masks(queries: Codes, worth: NDArray[np.float32] | None) -> tuple[Words, NDArray[np.int64]]:
    """Return the masks (q, w, DIGITS, 2^(1 + sure)) of queries, and what each adds to every distance (q,).

    `worth` (n_bits, 2^sure) is that of the database's levels, None for codes without (sure = 0). The last axis of the
    masks counts products: bit 0 of its index stands for the code's bit, bit 1 for the first plane of levels, bit 2 for
    the second; index 0 is the constant. So with one plane the j-th digits of the bits in word w are

        masks[i, w, j, 0] ^ (masks[i, w, j, 1] & c) ^ (masks[i, w, j, 2] & l) ^ (masks[i, w, j, 3] & c & l)

    and the distance is base[i] + Σ_w Σ_j 2^j popcount(digits). What a bit adds at least is in the base, so no distance
    is below it. Whether what is added is odd does not depend on the code's bit, and without levels it is always even:
    masks[:, :, 0, 1::2] are zero, without levels all of masks[:, :, 0].
    """
    weights = pair_weights(queries, worth)  # (q, n_bits, levels)
    differs = queries.unpack()[:, :, None, None] != np.arange(2, dtype=np.uint8)  # (q, n_bits, 1, 2)
    added = np.where(differs, UNITS + weights[..., None], UNITS - weights[..., None])
    added = added.reshape(*weights.shape[:2], 2 * weights.shape[2])  # (q, n_bits, products)
    least = added.min(axis=2)
    added -= least[:, :, None]
    products = np.arange(added.shape[2])
    step = 1
    while step < len(products):  # from a table of values to exclusive ors of products, for all digits at once
        having = (products & step) != 0
        added[:, :, having] ^= added[:, :, ~having]
        step *= 2
    digits = added[:, :, None] >> np.arange(DIGITS, dtype=np.uint8)[:, None] & 1  # (q, n_bits, DIGITS, products)
    packed = np.packbits(digits, axis=1, bitorder="little")
    rows = np.moveaxis(packed, 1, -1).reshape(-1, packed.shape[1])  # a row for each query, digit and product
    words = packed_words(rows, queries.n_bits)
    masks = words.reshape(len(words), len(queries), DIGITS, len(products)).swapaxes(0, 1)
    return np.ascontiguousarray(masks), least.sum(axis=1, dtype=np.int64)


def soft_distances_to(masks: Words, base: int | np.int64, planes: Words) -> NDArray[np.uint32]:
    """Return the soft distance (n,) of each code of `planes` (1 + sure, w, n) to one query: its masks and base."""
    total = np.full(planes.shape[2], base, np.uint32)
    for of_word, word in zip(masks, planes.swapaxes(0, 1), strict=True):
        for digit, of_digit in enumerate(of_word):
            total += np.bitwise_count(_digits(of_digit, word)).astype(np.uint32) << np.uint32(digit)
    return total


def _digits(masks: Words, planes: Words) -> NDArray[Any]:
    """Return one digit of all bits of a word (n,): masks (2^planes,) of the products, planes (1 + sure, n)."""
    if not len(planes):
        return masks[0]  # type: ignore[no-any-return]
    half = len(masks) // 2
    if not masks[half:].any():  # the last plane does not matter
        return _digits(masks[:half], planes[:-1])
    found: NDArray[Any] = _digits(masks[:half], planes[:-1]) ^ (_digits(masks[half:], planes[:-1]) & planes[-1])
    return found
