"""What the arrays of codes must be, each with a sentence where it is not."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import DtypeError, InputError


def checked_array(name: str, value: Any, dtype: type[Any], ndim: int) -> NDArray[Any]:
    """Return an array of this dtype and number of dimensions; whole numbers become int64 where that is wanted."""
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


def check_spare(name: str, packed: NDArray[np.uint8], n_bits: int) -> None:
    """Raise if rows of packed bits (…, width) have ones beyond their length."""
    spare = -n_bits % 8
    if spare and packed.size and int(packed[..., -1].max()) >> (8 - spare):
        raise InputError(f"{name} has ones beyond bit {n_bits}; unused bits must be zero")


def checked_uncertainty(uncertainty: Any, n: int, n_bits: int) -> NDArray[np.float32]:
    """Return the uncertainty, which must be probabilities from 0 to ½ (n, n_bits)."""
    array = checked_array("uncertainty", uncertainty, np.float32, 2)
    if array.shape != (n, n_bits):
        raise InputError(f"uncertainty must have shape {(n, n_bits)}, got {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() <= 0.5):  # also false for NaN
        raise InputError(f"uncertainty must be from 0 to 0.5, got numbers from {array.min()} to {array.max()}")
    return array


def checked_image_uncertainty(uncertainty: Any, n: int) -> NDArray[np.float32]:
    """Return how unsure n images are as a whole, which must be from 0 to 1 (n,)."""
    unsure = checked_array("image_uncertainty", uncertainty, np.float32, 1)
    if unsure.shape != (n,):
        raise InputError(f"image_uncertainty must have one entry per code, got {len(unsure)} for {n} codes")
    if n and not (unsure.min() >= 0 and unsure.max() <= 1):  # NaN is neither
        raise InputError("image_uncertainty must be from 0 to 1")
    return unsure


def checked_levels(
    levels: Any, worth: Any, n: int, n_bits: int
) -> tuple[NDArray[np.uint8] | None, NDArray[np.float32] | None]:
    """Return levels (n, sure, width) and their worth (n_bits, 2^sure), which come together."""
    if (levels is None) != (worth is None):
        raise InputError("levels and worth come together, but only one was given")
    if levels is None:
        return None, None
    planes, values = checked_array("levels", levels, np.uint8, 3), checked_array("worth", worth, np.float32, 2)
    sure = planes.shape[1]
    if planes.shape != (n, sure, -(-n_bits // 8)) or sure not in (1, 2):
        raise InputError(f"levels must have shape {(n, '1 or 2', -(-n_bits // 8))}, got {planes.shape}")
    check_spare("levels", planes, n_bits)
    if values.shape != (n_bits, 2**sure):
        raise InputError(f"worth must have shape {(n_bits, 2**sure)}, got {values.shape}")
    if not (values.min() >= 0 and values.max() <= 1 and (np.diff(values, axis=1) >= 0).all()):
        raise InputError("worth must be from 0 to 1 and must not fall from level to level")
    return planes, values


def same(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    """Return whether two arrays are equal, or both not there."""
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def unique(ids: NDArray[np.int64]) -> bool:
    """Return whether no id occurs twice."""
    return bool(np.all(ids[1:] > ids[:-1])) or len(np.unique(ids)) == len(ids)
