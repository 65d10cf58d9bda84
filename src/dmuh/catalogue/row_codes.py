"""The codes of rows of a catalogue, as an index takes them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.rows import Row
from dmuh.codes import Codes


def codes_of(rows: Sequence[Row], n_bits: int, worth: NDArray[np.float32] | None) -> Codes:
    """Return the codes of rows, with their levels if `worth` says what these stand for; ids are positions."""
    width = -(-n_bits // 8)
    bits = np.frombuffer(b"".join([row.code for row in rows]), np.uint8).reshape(len(rows), width)
    if worth is None:
        return Codes(bits, n_bits)
    planes = np.frombuffer(b"".join([row.levels or b"" for row in rows]), np.uint8)
    return Codes(bits, n_bits, levels=planes.reshape(len(rows), -1, width), worth=worth)
