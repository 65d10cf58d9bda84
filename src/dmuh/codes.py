"""Codes: packed binary codes with their ids and, where the method knows it, their uncertainty."""

import importlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.errors import DtypeError, FormatError, InputError, MissingPackageError
from dmuh.files import load_arrays, save_arrays

_KIND, _VERSION = "dmuh codes", 1
_SHOWN = 3  # codes that a repr shows


@dataclass(frozen=True, eq=False)
class Codes:
    """N binary codes of `n_bits` each.

    bits         uint8 (N, ceil(n_bits / 8)); bit k of a code is bit k % 8 of byte k // 8; unused bits are zero
    n_bits       length of a code
    uncertainty  float32 (N, n_bits) or None: how unsure the network is of each bit
    ids          int64 (N,), unique; by default the position

    Codes are indexed, sliced and iterated over like a list, and every part of them is Codes again. NumPy sees them as a
    matrix of 0 and 1, one column per bit.

    >>> codes = dmuh.Codes.from_outputs([[0.5, -1.2, 2.0, -0.3], [-0.1, 0.2, 0.7, 0.9]])
    >>> codes
    Codes(2 × 4 bits: 05, 0e)
    >>> np.asarray(codes)
    array([[1, 0, 1, 0],
           [0, 1, 1, 1]], dtype=uint8)
    >>> codes[1], codes[1].ids
    (Codes(1 × 4 bits: 0e), array([1]))
    >>> [code.ids[0].item() for code in codes]
    [0, 1]
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
            raise InputError(f"ids must have one entry per code, got {len(ids)} for {n} codes")
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
        """Make codes from real outputs (N, n_bits): bit = output ≥ 0. Infinite is fine, NaN is refused.

        >>> dmuh.Codes.from_outputs([[0.5, -1.2, 2.0, -0.3]], uncertainty=[[0.1, 0.3, 0.0, 0.4]], ids=[17])
        Codes(1 × 4 bits, with uncertainty: 05)
        """
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

    def __getitem__(self, rows: SupportsIndex | slice | NDArray[Any] | Sequence[int]) -> "Codes":
        """Return the codes of the given rows, with their ids: a position, a slice, positions or a boolean mask."""
        if isinstance(rows, SupportsIndex) and not isinstance(rows, np.ndarray):
            row = operator.index(rows)
            if not -len(self) <= row < len(self):
                raise IndexError(f"there are {len(self):,} codes, got position {row}")
            rows = [row]
        unsure = None if self.uncertainty is None else self.uncertainty[rows]
        return Codes(self.bits[rows], self.n_bits, unsure, self.ids[rows])

    def __iter__(self) -> Iterator["Codes"]:
        """Yield each code by itself, as Codes of length 1."""
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the bits one per column, as `unpack` does, for NumPy."""
        if copy is False:
            raise ValueError("codes are packed: an array of their bits is always a copy")
        return self.unpack().astype(dtype or np.uint8, copy=False)

    def __eq__(self, other: object) -> bool:
        """Whether bits, ids and uncertainty are the same."""
        if not isinstance(other, Codes):
            return NotImplemented
        if self.n_bits != other.n_bits or (self.uncertainty is None) != (other.uncertainty is None):
            return False
        same = np.array_equal(self.bits, other.bits) and np.array_equal(self.ids, other.ids)
        return same and (
            self.uncertainty is None
            or other.uncertainty is None
            or np.array_equal(self.uncertainty, other.uncertainty, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]  # as for arrays: equal ones are found by comparing all bits

    def __repr__(self) -> str:
        known = "" if self.uncertainty is None else ", with uncertainty"
        first = ", ".join([*self[:_SHOWN].hex(), *(["…"] if len(self) > _SHOWN else [])])
        return f"Codes({len(self):,} × {self.n_bits} bits{known}{': ' if first else ''}{first})"

    @property
    def image_uncertainty(self) -> NDArray[np.float32] | None:
        """How unsure the network is of each image: the mean over its bits (N,), or None.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]], uncertainty=[[0.25, 0.75]]).image_uncertainty
        array([0.5], dtype=float32)
        """
        if self.uncertainty is None:
            return None
        mean: NDArray[np.float32] = self.uncertainty.mean(axis=1, dtype=np.float32)
        return mean

    def unpack(self) -> NDArray[np.uint8]:
        """Return the bits one per column: uint8 (N, n_bits) of 0 and 1.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0, 3.0]]).unpack()
        array([[1, 0, 1]], dtype=uint8)
        """
        return np.unpackbits(self.bits, axis=1, count=self.n_bits, bitorder="little")

    def hex(self) -> list[str]:
        """Return each code's bytes as hexadecimal digits, two per byte; bits 0 to 7 are the first byte, 0 the lowest.

        >>> dmuh.Codes.from_outputs(np.ones((1, 12))).hex()
        ['ff0f']
        """
        return [row.tobytes().hex() for row in self.bits]

    def to_pandas(self) -> Any:
        """Return a pandas table of one row per code: id, code in hexadecimal digits, and mean uncertainty if known.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0], [1.0, 1.0]], [[0.25, 0.75], [0.5, 0.25]], ids=[7, 9]).to_pandas()
           id code  uncertainty
        0   7   01        0.500
        1   9   03        0.375
        """
        columns: dict[str, Any] = {"id": self.ids, "code": self.hex()}
        if self.image_uncertainty is not None:
            columns["uncertainty"] = self.image_uncertainty
        return pandas_table(columns)

    def save(self, path: str | Path, *, of: str = "") -> None:
        """Write the codes to one file, atomically; `of` says what they belong to.

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0]])
        >>> codes.save(folder / "codes.safetensors")
        >>> dmuh.Codes.load(folder / "codes.safetensors") == codes
        True
        """
        arrays: dict[str, NDArray[Any]] = {"bits": self.bits, "ids": self.ids}
        if self.uncertainty is not None:
            arrays["uncertainty"] = self.uncertainty
        save_arrays(Path(path), _KIND, _VERSION, arrays, {"n_bits": self.n_bits, "of": of})

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = False, of: str | None = None) -> "Codes":
        """Read codes written by `save`; with `memory_map` they stay on disk until used.

        With `of`, codes that belong to something else are refused.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]]).save(folder / "codes.safetensors", of="photos")
        >>> dmuh.Codes.load(folder / "codes.safetensors", of="shoes")
        Traceback (most recent call last):
        dmuh.errors.FormatError: ... holds codes of another model or of other images
        """
        file = load_arrays(Path(path), _KIND, _VERSION, memory_map=memory_map)
        if of is not None and file.metadata.get("of", "") != of:
            raise FormatError(f"{path} holds codes of another model or of other images")
        try:
            return cls(file.arrays["bits"], file.metadata["n_bits"], file.arrays.get("uncertainty"), file.arrays["ids"])
        except (KeyError, TypeError, InputError) as error:
            raise FormatError(f"{path} does not hold codes as this dmuh writes them: {error}") from error


def pandas_table(columns: Mapping[str, Any]) -> Any:
    """Return a pandas DataFrame of these columns; dmuh does not depend on pandas, so it may be missing."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise MissingPackageError("a table needs pandas: pip install pandas") from error
    return pandas.DataFrame(columns)


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
