"""CodeArrays: the arrays that codes consist of, checked, and taken apart like a list."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dmuh.codes.checks import (
    check_spare,
    checked_array,
    checked_image_uncertainty,
    checked_levels,
    checked_uncertainty,
    same,
    unique,
)
from dmuh.errors import InputError


class CodeArrays:
    """What Codes says of its fields; every part of it is of the same class again."""

    __slots__ = ("_exact", "_of_images", "bits", "contents", "ids", "levels", "n_bits", "worth")

    bits: NDArray[np.uint8]
    n_bits: int
    ids: NDArray[np.int64]
    levels: NDArray[np.uint8] | None
    worth: NDArray[np.float32] | None
    contents: NDArray[np.int64] | None
    _exact: NDArray[np.float32] | None
    _of_images: NDArray[np.float32] | None

    def __init__(
        self,
        bits: NDArray[np.uint8],
        n_bits: int,
        uncertainty: NDArray[np.float32] | None = None,
        ids: Sequence[int] | NDArray[Any] | None = None,
        levels: NDArray[np.uint8] | None = None,
        worth: NDArray[np.float32] | None = None,
        contents: NDArray[np.int64] | None = None,
        image_uncertainty: NDArray[np.float32] | None = None,
    ) -> None:
        self.bits = checked_array("bits", bits, np.uint8, 2)
        self.n_bits = n_bits
        if n_bits < 1:
            raise InputError(f"n_bits must be at least 1, got {n_bits}")
        n, width = len(self.bits), -(-n_bits // 8)
        if self.bits.shape[1] != width:
            raise InputError(f"bits of {n_bits}-bit codes must have {width} columns, got {self.bits.shape[1]}")
        check_spare("bits", self.bits, n_bits)
        self.ids = np.arange(n, dtype=np.int64) if ids is None else checked_array("ids", ids, np.int64, 1)
        if len(self.ids) != n:
            raise InputError(f"ids must have one entry per code, got {len(self.ids)} for {n} codes")
        if ids is not None and not unique(self.ids):
            raise InputError("ids must be unique, but some occur twice")
        self._exact = None if uncertainty is None else checked_uncertainty(uncertainty, n, n_bits)
        self.levels, self.worth = checked_levels(levels, worth, n, n_bits)
        self.contents = None if contents is None else checked_array("contents", contents, np.int64, 1)
        if self.contents is not None and len(self.contents) != n:
            raise InputError(f"contents must have one entry per code, got {len(self.contents)} for {n} codes")
        self._of_images = None if image_uncertainty is None else checked_image_uncertainty(image_uncertainty, n)

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, rows: SupportsIndex | slice | NDArray[Any] | Sequence[int]) -> Self:
        """Return the codes of the given rows, with their ids: a position, a slice, positions or a boolean mask."""
        if isinstance(rows, SupportsIndex) and not isinstance(rows, np.ndarray):
            row = operator.index(rows)
            if not -len(self) <= row < len(self):
                raise IndexError(f"there are {len(self):,} codes, got position {row}")
            rows = [row]
        exact = None if self._exact is None else self._exact[rows]
        levels = None if self.levels is None else self.levels[rows]
        contents = None if self.contents is None else self.contents[rows]
        of_images = None if self._of_images is None else self._of_images[rows]
        return type(self)(self.bits[rows], self.n_bits, exact, self.ids[rows], levels, self.worth, contents, of_images)

    def __iter__(self) -> Iterator[Self]:
        """Yield each code by itself, as Codes of length 1."""
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether bits, ids, uncertainty and levels are the same."""
        if not isinstance(other, CodeArrays):
            return NotImplemented
        return self.n_bits == other.n_bits and all(
            same(getattr(self, name), getattr(other, name)) for name in CodeArrays.__slots__ if name != "n_bits"
        )

    __hash__ = None  # type: ignore[assignment]  # as for arrays: equal ones are found by comparing all bits
