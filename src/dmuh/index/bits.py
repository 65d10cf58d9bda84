"""Packed codes as machine words, and how many bits differ between two of them."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dmuh.codes import Codes

Words = NDArray[Any]  # uint32 or uint64 (words a code, codes)


@intrinsic
def popcount(typing_context: Any, number: Any) -> Any:
    """Return the ones of an integer, inside a compiled function: one machine instruction."""
    del typing_context
    if not isinstance(number, types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.ctpop(arguments[0])

    return number(number), generate


def word_type(n_bits: int) -> np.dtype[Any]:
    """Return the type of the words that hold codes of a length."""
    return np.dtype(np.uint32 if n_bits <= 32 else np.uint64)


def as_words(codes: Codes) -> Words:
    """Return the codes as words, a row for each word of a code: uint32 (1, n) up to 32 bits, else uint64 (w, n).

    Padding bits are zero and do not change distances.
    """
    kind = word_type(codes.n_bits)
    n, width = codes.bits.shape
    padded = np.zeros((n, -(-width // kind.itemsize) * kind.itemsize), np.uint8)
    padded[:, :width] = codes.bits
    return np.ascontiguousarray(padded.view(kind.newbyteorder("<")).astype(kind, copy=False).T)
