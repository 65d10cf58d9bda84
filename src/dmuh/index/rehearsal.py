"""Tiny searches that take every way through the compiled kernels, so that these are compiled or loaded."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dmuh.codes import Codes
from dmuh.index import soft_search
from dmuh.index.bits import Words, as_words
from dmuh.index.cells import Cells, find_cells
from dmuh.index.grouping import in_key_order
from dmuh.index.kernel_use import only
from dmuh.index.segment import Segment
from dmuh.index.soft import UNITS
from dmuh.index.weighing import SoftQueries, level_rows

_LENGTHS = (32, 64)  # bits of a code; kernels differ by the type of a word alone
_NO_TURN = np.zeros(1, np.int64)


def rehearsals() -> dict[str, Callable[[], None]]:
    """Return what compiles the kernels, by the name of what they do; those that a service needs first come first."""
    found: dict[str, Callable[[], None]] = {}
    for n_bits in _LENGTHS:
        found[f"search in codes of {_range(n_bits)}"] = partial(_rehearse_search, n_bits)
        found[f"soft search in codes of {_range(n_bits)}"] = partial(_rehearse_soft, n_bits)
    for n_bits in _LENGTHS:
        found[f"search by radius in codes of {_range(n_bits)}"] = partial(_rehearse_within, n_bits)
        found[f"soft search by radius in codes of {_range(n_bits)}"] = partial(_rehearse_soft_within, n_bits)
        found[f"cells of codes of {_range(n_bits)}"] = partial(_rehearse_cells, n_bits)
    return found


def _range(n_bits: int) -> str:
    return "at most 32 bits" if n_bits <= 32 else "more than 32 bits"


def _tiny(n_bits: int) -> tuple[Segment, Words]:
    """Return a few codes, and one query: more would be shared with other threads, which may have ended."""
    codes = Codes(np.arange(n_bits, dtype=np.uint8).reshape(8, -1), n_bits)
    return Segment.build(as_words(codes), codes.ids, level_rows(codes), n_bits), as_words(codes[:1])


def _rehearse_search(n_bits: int) -> None:
    with only(compiled=True):
        segment, query = _tiny(n_bits)
        in_key_order(segment.keys, len(segment.keys))
        segment.search(query, _NO_TURN, 1, None)


def _rehearse_within(n_bits: int) -> None:
    with only(compiled=True):
        segment, query = _tiny(n_bits)
        segment.within(query, _NO_TURN, 1, None)


def _tiny_graded(n_bits: int) -> Iterator[tuple[Segment, SoftQueries]]:
    """Yield codes without levels, with levels and all different, and with levels and alike, with one query each."""
    bits = np.arange(n_bits, dtype=np.uint8).reshape(8, -1)
    worth = np.tile(np.array([0.2, 1.0], np.float32), (n_bits, 1))
    alike = Codes(bits[[0, 0, 0, 1, 1, 2, 2, 3]], n_bits, levels=bits[:, None], worth=worth)
    for codes in (Codes(bits, n_bits), Codes(bits, n_bits, levels=bits[:, None], worth=worth), alike):
        segment = Segment.build(as_words(codes), codes.ids, level_rows(codes), n_bits)
        yield segment, SoftQueries.of(codes[:1], codes.worth)


def _rehearse_soft(n_bits: int) -> None:
    with only(compiled=True):
        for segment, query in _tiny_graded(n_bits):
            soft_search.nearest(segment, query, 1, None)
            in_a_cell = replace(segment, cells=Cells.whole(segment.words, n_bits))
            soft_search.nearest(in_a_cell, query, 1, None)


def _rehearse_soft_within(n_bits: int) -> None:
    with only(compiled=True):
        for segment, query in _tiny_graded(n_bits):
            soft_search.within(segment, query, 2 * UNITS * n_bits, None)


def _rehearse_cells(n_bits: int) -> None:
    with only(compiled=True):
        segment, _ = _tiny(n_bits)
        find_cells(segment.words, np.ones(8, np.int64), n_bits, fewest=1)
