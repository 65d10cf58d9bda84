"""Packed codes as machine words, and how many bits differ between them, by numpy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes

Words = NDArray[Any]  # uint32 or uint64 (words per code, codes)


def word_type(n_bits: int) -> np.dtype[Any]:
    """Return the type of the words that hold codes of a length."""
    return np.dtype(np.uint32 if n_bits <= 32 else np.uint64)


def as_words(codes: Codes) -> Words:
    """Return the codes as words, a row for each word of a code: uint32 (1, n) up to 32 bits, else uint64 (w, n).

    Padding bits are zero and do not change distances.
    """
    return packed_words(codes.bits, codes.n_bits)


def packed_words(packed: NDArray[np.uint8], n_bits: int) -> Words:
    """Return rows of `n_bits` packed bits (n, ceil(n_bits / 8)) as words, as `as_words` does those of codes."""
    kind = word_type(n_bits)
    n, width = packed.shape
    padded = np.zeros((n, -(-width // kind.itemsize) * kind.itemsize), np.uint8)
    padded[:, :width] = packed
    return np.ascontiguousarray(padded.view(kind.newbyteorder("<")).astype(kind, copy=False).T)


def distances_to(query: Words, words: Words) -> NDArray[np.uint16]:
    """Return the Hamming distance (n,) of each code of `words` (w, n) to one query (w,)."""
    total: NDArray[np.uint16] = np.bitwise_count(words[0] ^ query[0]).astype(np.uint16)
    for row, word in zip(words[1:], query[1:], strict=True):
        total += np.bitwise_count(row ^ word)
    return total


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written, so that kernels see one type for arrays in memory and in a file."""
    view = array.view()
    view.flags.writeable = False
    return view
