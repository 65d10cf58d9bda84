"""Codes: packed binary codes with their ids and, where the method knows it, their uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.errors import DtypeError, FormatError, InputError
from dmuh.files import load_arrays, save_arrays

_KIND, _VERSION = "dmuh codes", 1


@dataclass(frozen=True, eq=False)
class Codes:
    """N binary codes of `n_bits` each.

    bits         uint8 (N, ceil(n_bits / 8)); bit k of a code is bit k % 8 of byte k // 8; unused bits are zero
    n_bits       length of a code
    uncertainty  float32 (N, n_bits) or None: how unsure the network is of each bit
    ids          int64 (N,), unique; by default the position
    """

    bits: NDArray[np.uint8]
    n_bits: int
    uncertainty: NDArray[np.float32] | None = None
    ids: NDArray[np.int64] = None  # type: ignore[assignment]  # filled in by __post_init__

    def __post_init__(self) -> None:
        bits = _array("bits", self.bits, np.uint8, 2)
        if self.n_bits < 1:
            raise InputError(f"n_bits must be at least 1, got {self.n_bits}")
        n, width = len(bits), -(-self.n_bits // 8)
        if bits.shape[1] != width:
            raise InputError(f"bits of {self.n_bits}-bit codes must have {width} columns, got {bits.shape[1]}")
        spare = 8 * width - self.n_bits
        if spare and n and int(bits[:, -1].max()) >> (8 - spare):
            raise InputError(f"bits has ones beyond bit {self.n_bits}; unused bits must be zero")
        ids = np.arange(n, dtype=np.int64) if self.ids is None else _array("ids", self.ids, np.int64, 1)
        if len(ids) != n:
            raise InputError(f"ids must have one entry a code, got {len(ids)} for {n} codes")
        if self.ids is not None and not _unique(ids):
            raise InputError("ids must be unique, but some occur twice")
        uncertainty = self.uncertainty
        if uncertainty is not None:
            uncertainty = _array("uncertainty", uncertainty, np.float32, 2)
            if uncertainty.shape != (n, self.n_bits):
                raise InputError(f"uncertainty must have shape {(n, self.n_bits)}, got {uncertainty.shape}")
        for name, value in {"bits": bits, "ids": ids, "uncertainty": uncertainty}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_outputs(
        cls,
        outputs: ArrayLike,
        uncertainty: ArrayLike | None = None,
        ids: Sequence[int] | NDArray[Any] | None = None,
    ) -> "Codes":
        """Make codes from real outputs (N, n_bits): bit = output ≥ 0. Infinite is fine, NaN is refused."""
        real = np.asarray(outputs)
        if real.ndim != 2 or real.shape[1] < 1:
            raise InputError(f"outputs must have shape (images, bits), got {real.shape}")
        if real.dtype.kind not in "fiu":
            raise DtypeError(f"outputs must be real numbers, got dtype {real.dtype}")
        if np.isnan(real).any():
            row = int(np.flatnonzero(np.isnan(real).any(axis=1))[0])
            raise InputError(f"outputs must be numbers, but row {row} has a NaN")
        unsure = None if uncertainty is None else np.asarray(uncertainty, np.float32)
        packed = np.packbits(real >= 0, axis=1, bitorder="little")
        return cls(packed, real.shape[1], unsure, None if ids is None else np.asarray(ids))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, rows: slice | NDArray[Any] | Sequence[int]) -> "Codes":
        """Return the codes of the given rows (a slice, positions or a boolean mask), with their ids."""
        unsure = None if self.uncertainty is None else self.uncertainty[rows]
        return Codes(self.bits[rows], self.n_bits, unsure, self.ids[rows])

    def __repr__(self) -> str:
        known = "" if self.uncertainty is None else ", with uncertainty"
        return f"Codes({len(self):,} × {self.n_bits} bits{known})"

    @property
    def image_uncertainty(self) -> NDArray[np.float32] | None:
        """How unsure the network is of each image: the mean over its bits (N,), or None."""
        if self.uncertainty is None:
            return None
        mean: NDArray[np.float32] = self.uncertainty.mean(axis=1, dtype=np.float32)
        return mean

    def unpack(self) -> NDArray[np.uint8]:
        """Return the bits one a column: uint8 (N, n_bits) of 0 and 1."""
        return np.unpackbits(self.bits, axis=1, count=self.n_bits, bitorder="little")

    def save(self, path: str | Path, *, of: str = "") -> None:
        """Write the codes to one file, atomically; `of` says what they belong to."""
        arrays: dict[str, NDArray[Any]] = {"bits": self.bits, "ids": self.ids}
        if self.uncertainty is not None:
            arrays["uncertainty"] = self.uncertainty
        save_arrays(Path(path), _KIND, _VERSION, arrays, {"n_bits": self.n_bits, "of": of})

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = False, of: str | None = None) -> "Codes":
        """Read codes written by `save`; with `memory_map` they stay on disk until used.

        With `of`, codes that belong to something else are refused.
        """
        file = load_arrays(Path(path), _KIND, _VERSION, memory_map=memory_map)
        if of is not None and file.metadata.get("of", "") != of:
            raise FormatError(f"{path} holds codes of another model or of other images")
        try:
            return cls(file.arrays["bits"], file.metadata["n_bits"], file.arrays.get("uncertainty"), file.arrays["ids"])
        except (KeyError, TypeError, InputError) as error:
            raise FormatError(f"{path} does not hold codes as this dmuh writes them: {error}") from error


def uncertainty_percentiles(uncertainty: ArrayLike | None) -> list[float] | None:
    """Return what 0, 1, …, 100% of images stay at or below in uncertainty; None where it is not known."""
    if uncertainty is None or not np.size(uncertainty):
        return None
    return [round(float(value), 6) for value in np.percentile(np.asarray(uncertainty, float), range(101))]


def less_certain_than(uncertainty: float, percentiles: Sequence[float]) -> int:
    """Return the percentage of images that have a smaller uncertainty, by their percentiles: 0 to 99."""
    return min(99, max(0, int(np.searchsorted(percentiles, uncertainty)) - 1))


def _array(name: str, value: Any, dtype: type[Any], ndim: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    wanted = np.dtype(dtype)
    if array.dtype != wanted:
        if wanted == np.int64 and (array.dtype.kind in "iu" or not array.size):
            if array.size and int(array.max()) > np.iinfo(np.int64).max:
                raise InputError(f"{name} must be below 2^63, got {array.max()}")
            return array.astype(np.int64)
        raise DtypeError(f"{name} must be {wanted}, got {array.dtype}")
    return array


def _unique(ids: NDArray[np.int64]) -> bool:
    return bool(np.all(ids[1:] > ids[:-1])) or len(np.unique(ids)) == len(ids)
