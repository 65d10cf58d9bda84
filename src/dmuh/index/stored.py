"""What an index file holds: one segment and what its levels are worth, as arrays by name.

Version 1 had the ids themselves, codes in their order, and no levels. Versions 2 and 3 had the rows of levels without
their codes, code after code, and in no shells.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.index.bits import Words
from dmuh.index.cells import Cells
from dmuh.index.graded import Graded
from dmuh.index.segment import Segment
from dmuh.index.shells import Shells
from dmuh.index.shuffle import shuffled

Worth = NDArray[np.float32] | None


def to_arrays(segment: Segment | None, worth: Worth) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file; words are signed in it, as the format has them."""
    arrays: dict[str, NDArray[Any]] = {} if worth is None else {"worth": worth}
    if segment is None:
        return arrays
    kind = np.int32 if segment.words.dtype == np.uint32 else np.int64
    arrays |= {"words": segment.words.view(kind), "keys": segment.keys, "starts": segment.starts}
    if segment.cells is not None:
        arrays |= {"centres": segment.cells.centres.view(kind), "rings": segment.cells.rings}
    if segment.graded is not None:
        arrays |= {"levels": segment.graded.levels.view(kind), "row_starts": segment.graded.starts}
        shells = segment.graded.shells
        if shells is not None:  # else its rows and keys are the segment's
            arrays |= {"row_words": segment.graded.words.view(kind), "row_keys": segment.graded.keys}
            arrays |= {"shell_centres": shells.centres.view(kind), "shell_begins": shells.begins}
            arrays |= {"shell_shortest": shells.shortest, "shell_longest": shells.longest}
    return arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]], n_bits: Any, version: int) -> tuple[Segment | None, Worth]:
    """Return what `to_arrays` was given; raise KeyError, TypeError or ValueError where it could not have made these."""
    worth = arrays.get("worth")
    n_rows = 0 if worth is None else _levels(worth, n_bits) - 1
    if not set(arrays) - {"worth"}:
        return None, worth
    words, starts = _unsigned(arrays["words"]), arrays["starts"]
    keys = shuffled(arrays["ids"]) if version == 1 and arrays["ids"].dtype == np.int64 else arrays["keys"]
    graded = None
    if n_rows:
        row_starts, row_keys = arrays.get("row_starts", np.empty(0, np.int64)), arrays.get("row_keys", keys)
        row_words, shells = _rows(arrays, words, version)
        graded = Graded(row_words, _unsigned(arrays["levels"]), row_starts, row_keys, shells)
    segment = Segment(words, starts, keys, np.empty(0, np.bool_), n_bits, graded)
    segment.check(n_rows)
    if version == 1 or (version < 4 and graded is not None):
        return Segment.build(*segment.expanded(), n_bits), worth
    if "rings" in arrays:
        cells = Cells.of_rings(_unsigned(arrays["centres"]), arrays["rings"], words, n_bits)
        return replace(segment, cells=cells), worth
    return segment, worth


def _rows(arrays: Mapping[str, NDArray[Any]], words: Words, version: int) -> tuple[Words, Shells | None]:
    """Return the code of each row of levels, and the shells in which the rows stand, None where they are in none."""
    if version < 4:
        rows = arrays["rows"]
        fits = rows.ndim == 1 and (not len(rows) or (rows[0] == 0 and len(rows) == words.shape[1] + 1))
        if not fits or (len(rows) and (rows[-1] != arrays["levels"].shape[-1] or (np.diff(rows) < 1).any())):
            raise ValueError("its levels do not fit its codes")
        return np.repeat(words, np.diff(rows), axis=1) if len(rows) else words, None
    if "row_words" not in arrays:
        return words, None
    shells = (arrays[f"shell_{name}"] for name in ("begins", "shortest", "longest"))
    return _unsigned(arrays["row_words"]), Shells(_unsigned(arrays["shell_centres"]), *shells)


def _unsigned(words: NDArray[Any]) -> NDArray[Any]:
    return words.view(np.uint32 if words.dtype == np.int32 else np.uint64)


def _levels(worth: NDArray[Any], n_bits: Any) -> int:
    """Return how many levels these are the worth of (n_bits, levels); codes are refused where they cannot be."""
    sure, width = int(worth.shape[-1]).bit_length() - 1, -(-n_bits // 8)
    nothing = np.empty((0, width), np.uint8)
    Codes(nothing, n_bits, levels=np.empty((0, sure, width), np.uint8), worth=worth)
    return int(2**sure)
