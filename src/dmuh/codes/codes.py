"""Codes: packed binary codes with their ids and, where it is known, how sure each bit is."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.codes.arrays import CodeArrays
from dmuh.codes.checks import same
from dmuh.codes.table import pandas_table
from dmuh.errors import DtypeError, FormatError, InputError
from dmuh.files import load_arrays, save_arrays

_KIND, _VERSION = "dmuh codes", 2
_HEX = re.compile("([0-9a-fA-F]{2})+")
_SHOWN = 3  # codes that a repr shows
_TOGETHER = 65_536  # codes whose levels are unpacked at a time


class Codes(CodeArrays):
    """N binary codes of `n_bits` each and, where it is known, how sure each bit is. They never change.

    bits         uint8 (N, ceil(n_bits / 8)); bit k of a code is bit k % 8 of byte k // 8; unused bits are zero
    n_bits       length of a code
    uncertainty  float32 (N, n_bits) or None: the probability that each bit turns over, 0 to ½
    ids          int64 (N,), unique; by default the position
    levels       uint8 (N, 1 or 2, ceil(n_bits / 8)) or None: how sure each bit is in one or two bits more, packed as
                 the bits are; the level of a bit is that of the first plane, plus twice that of the second
    worth        float32 (n_bits, 2 or 4) or None: what each level of each bit stands for, 1 less twice the probability
                 that a bit of that level turns over; it does not fall from level to level
    contents     int64 (N,) or None: a digest of the network's outputs for each image, by which identical ones are found
    image_uncertainty  float32 (N,) or None: how unsure each image is as a whole, 0 to 1; not given, the mean over bits

    Fresh codes have the exact `uncertainty`. What is indexed keeps the levels in its place, a 32nd of its size or a
    16th, and has the uncertainty of each bit's level.

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

    __slots__ = ()

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
        return cls(packed, real.shape[1], unsure, None if ids is None else np.asarray(ids))

    @classmethod
    def from_hex(
        cls, texts: Sequence[str], n_bits: int | None = None, ids: Sequence[int] | NDArray[Any] | None = None
    ) -> "Codes":
        """Make codes from hexadecimal digits, two per byte, as `hex` gives them and other programs write hashes.

        Without `n_bits` all bits of the digits count.

        >>> codes = dmuh.Codes.from_hex(["8f373714acfcf4d0", "8f373714acfcf4d1"])
        >>> codes
        Codes(2 × 64 bits: 8f373714acfcf4d0, 8f373714acfcf4d1)
        >>> dmuh.HammingIndex().add(codes).search(codes[:1], k=2).distances
        array([[0, 1]], dtype=int32)
        """
        for text in texts:
            if not _HEX.fullmatch(text):
                raise InputError(f"a code must be hexadecimal digits, two per byte, got {text[:100]!r}")
            if len(text) != len(texts[0]):
                raise InputError(f"codes must be of one length, got {len(texts[0])} and {len(text)} digits")
        width = len(texts[0]) // 2 if texts else -(-(n_bits or 8) // 8)
        bits = np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), width)
        return cls(bits, 8 * width if n_bits is None else n_bits, ids=ids)

    @classmethod
    def concatenated(cls, parts: Sequence["Codes"]) -> "Codes":
        """Return the codes of all parts, of which there is at least one, one part behind the other.

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0], [1.0, 1.0]])
        >>> dmuh.Codes.concatenated([codes[1], codes[0]]).ids
        array([1, 0])
        """
        first = parts[0]
        exact = [part._exact for part in parts if part._exact is not None]
        levels = [part.levels for part in parts if part.levels is not None]
        contents = [part.contents for part in parts if part.contents is not None]
        of_images = [part._of_images for part in parts if part._of_images is not None]
        for part in parts[1:]:
            if part.n_bits != first.n_bits or part.sure != first.sure or not same(part.worth, first.worth):
                raise InputError(f"{part!r} and {first!r} are of different models: they cannot be put together")
        return cls(
            np.concatenate([part.bits for part in parts]),
            first.n_bits,
            np.concatenate(exact) if len(exact) == len(parts) else None,
            np.concatenate([part.ids for part in parts]),
            np.concatenate(levels) if levels else None,
            first.worth,
            np.concatenate(contents) if len(contents) == len(parts) else None,
            np.concatenate(of_images) if len(of_images) == len(parts) else None,
        )

    def _with(self, **changes: Any) -> "Codes":
        """Return the codes with other values of some arguments of `__init__`."""
        own = {"uncertainty": self._exact, "image_uncertainty": self._of_images}
        names = ("bits", "n_bits", "ids", "levels", "worth", "contents")
        return Codes(**(own | {name: getattr(self, name) for name in names} | changes))

    def with_contents(self, outputs: NDArray[np.float32]) -> "Codes":
        """Return the codes with a digest of each image's outputs (N, n_bits), which only identical images share.

        >>> outputs = np.array([[0.5, -1.0], [0.5, -1.0], [0.7, -1.0]], np.float32)
        >>> first, second, third = dmuh.Codes.from_outputs(outputs).with_contents(outputs).contents
        >>> bool(first == second), bool(first == third)
        (True, False)
        """
        digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in np.ascontiguousarray(outputs))
        contents = np.frombuffer(digests, "<i8").astype(np.int64)
        return self._with(contents=contents)

    def with_image_uncertainty(self, unsure: NDArray[np.float32] | None) -> "Codes":
        """Return the codes with how unsure each image is as a whole (N,); with None that is the mean over its bits.

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0]])
        >>> codes.with_image_uncertainty(np.array([0.25], np.float32)).image_uncertainty
        array([0.25], dtype=float32)
        """
        return self._with(image_uncertainty=unsure)

    def with_ids(self, ids: Sequence[int] | NDArray[Any]) -> "Codes":
        """Return the same codes under other ids.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0], [1.0, 1.0]]).with_ids([7, 9]).ids
        array([7, 9])
        """
        return self._with(ids=ids)

    def graded(self, thresholds: NDArray[np.float32], worth: NDArray[np.float32]) -> "Codes":
        """Return the codes with the level of each bit, from their exact uncertainty.

        thresholds  float32 (n_bits, 1 or 3), falling: a bit's level is how many of its bit's thresholds its uncertainty
                    is below
        worth       float32 (n_bits, 2 or 4): what the levels stand for

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0]], [[0.1, 0.4]])
        >>> graded = codes.graded(np.full((2, 1), 0.2, np.float32), np.array([[0.3, 0.9]] * 2, np.float32))
        >>> graded.level(), graded
        (array([[1, 0]], dtype=uint8), Codes(1 × 2 bits, each with 1 of sureness: 01))
        """
        if self._exact is None:
            raise InputError("codes are graded by their exact uncertainty, which these do not have")
        steps = (self._exact[:, :, None] < thresholds[None]).sum(axis=2, dtype=np.uint8)
        n_planes = int(worth.shape[1]).bit_length() - 1
        planes = [np.packbits(steps >> plane & 1, axis=1, bitorder="little") for plane in range(n_planes)]
        return self._with(levels=np.stack(planes, axis=1), worth=worth)

    def stored(self) -> "Codes":
        """Return the codes as an index keeps them: levels in place of the exact uncertainty, where they have levels.

        How unsure images are as a whole is not kept with them: a catalogue has that beside the codes.

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0]], [[0.1, 0.4]])
        >>> graded = codes.graded(np.full((2, 1), 0.2, np.float32), np.array([[0.3, 0.9]] * 2, np.float32))
        >>> graded.stored().uncertainty.round(2)
        array([[0.05, 0.35]], dtype=float32)
        """
        if self.levels is None or self._exact is None:
            return self
        return self._with(uncertainty=None, image_uncertainty=None)

    def plain(self) -> "Codes":
        """Return the bits and ids alone.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]], [[0.1, 0.4]]).plain()
        Codes(1 × 2 bits: 01)
        """
        return Codes(self.bits, self.n_bits, ids=self.ids)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the bits one per column, as `unpack` does, for NumPy."""
        if copy is False:
            raise ValueError("codes are packed: an array of their bits is always a copy")
        return self.unpack().astype(dtype or np.uint8, copy=False)

    def __repr__(self) -> str:
        known = "" if self._exact is None else ", with uncertainty"
        known = f", each with {self.sure} of sureness" if self.sure else known
        first = ", ".join([*self[:_SHOWN].hex(), *(["…"] if len(self) > _SHOWN else [])])
        return f"Codes({len(self):,} × {self.n_bits} bits{known}{': ' if first else ''}{first})"

    @property
    def sure(self) -> int:
        """How many bits say how sure each bit is: 0, 1 or 2.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]]).sure
        0
        """
        return 0 if self.levels is None else self.levels.shape[1]

    @property
    def knows_uncertainty(self) -> bool:
        """Whether it is known how sure the bits are.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]]).knows_uncertainty
        False
        """
        return self._exact is not None or self.levels is not None

    @property
    def uncertainty(self) -> NDArray[np.float32] | None:
        """The probability that each bit turns over (N, n_bits), 0 to ½: exact, else that of its level; None if unknown.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]], uncertainty=[[0.1, 0.4]]).uncertainty
        array([[0.1, 0.4]], dtype=float32)
        """
        if self._exact is not None or self.levels is None:
            return self._exact
        assert self.worth is not None, "levels come with what they are worth"
        of_levels = (1 - self.worth) / 2  # (n_bits, levels)
        unsure: NDArray[np.float32] = of_levels[np.arange(self.n_bits), self.level()].astype(np.float32)
        return unsure

    @property
    def image_uncertainty(self) -> NDArray[np.float32] | None:
        """How unsure each image is as a whole (N,), 0 to 1, or None.

        Codes of a model that was calibrated by labels have what is expected to be missing to the average precision of a
        search from the image. Without that it is the share of its bits that is expected to turn over, their mean.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]], uncertainty=[[0.1, 0.3]]).image_uncertainty
        array([0.2], dtype=float32)
        """
        if self._of_images is not None or not self.knows_uncertainty:
            return self._of_images
        parts = (self[first : first + _TOGETHER].uncertainty for first in range(0, len(self), _TOGETHER))
        means = [part.mean(axis=1, dtype=np.float32) for part in parts if part is not None]
        return np.concatenate([np.empty(0, np.float32), *means])

    def level(self) -> NDArray[np.uint8]:
        """Return the level of each bit: uint8 (N, n_bits) of 0 to 1 or 3, the surer the larger; 0 without levels.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]]).level()
        array([[0, 0]], dtype=uint8)
        """
        found = np.zeros((len(self), self.n_bits), np.uint8)
        for plane in range(self.sure):
            assert self.levels is not None
            ones = np.unpackbits(self.levels[:, plane], axis=1, count=self.n_bits, bitorder="little")
            found |= ones << plane
        return found

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
        """Return a pandas table of one row per code: id, code in hexadecimal digits, and uncertainty if known.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0], [1.0, 1.0]], [[0.25, 0.5], [0.25, 0.0]], ids=[7, 9]).to_pandas()
           id code  uncertainty
        0   7   01        0.375
        1   9   03        0.125
        """
        columns: dict[str, Any] = {"id": self.ids, "code": self.hex()}
        if self.image_uncertainty is not None:
            columns["uncertainty"] = self.image_uncertainty
        return pandas_table(columns)

    def save(self, path: str | Path, *, of: str = "") -> None:
        """Write the codes to one file, atomically, with all that is known of them; `of` says what they belong to.

        >>> codes = dmuh.Codes.from_outputs([[1.0, -1.0]])
        >>> codes.save(folder / "codes.safetensors")
        >>> dmuh.Codes.load(folder / "codes.safetensors") == codes
        True
        """
        arrays: dict[str, NDArray[Any]] = {"bits": self.bits, "ids": self.ids}
        if self.levels is not None and self.worth is not None:
            arrays |= {"levels": self.levels, "worth": self.worth}
        if self._exact is not None:
            arrays["uncertainty"] = self._exact
        if self.contents is not None:
            arrays["contents"] = self.contents
        if self._of_images is not None:
            arrays["image_uncertainty"] = self._of_images
        save_arrays(Path(path), _KIND, _VERSION, arrays, {"n_bits": self.n_bits, "of": of})

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = False, of: str | None = None) -> "Codes":
        """Read codes written by `save`; with `memory_map` they stay on disk until used.

        With `of`, codes that belong to something else are refused. Files of version 1 have uncertainties that are no
        probabilities, which are left out.

        >>> dmuh.Codes.from_outputs([[1.0, -1.0]]).save(folder / "codes.safetensors", of="photos")
        >>> dmuh.Codes.load(folder / "codes.safetensors", of="shoes")
        Traceback (most recent call last):
        dmuh.errors.FormatError: ... holds codes of another model or of other images
        """
        file = load_arrays(Path(path), _KIND, _VERSION, memory_map=memory_map, older=(1,))
        if of is not None and file.metadata.get("of", "") != of:
            raise FormatError(f"{path} holds codes of another model or of other images")
        arrays = file.arrays
        try:
            return cls(
                arrays["bits"],
                file.metadata["n_bits"],
                arrays.get("uncertainty") if file.version > 1 else None,
                arrays["ids"],
                arrays.get("levels"),
                arrays.get("worth"),
                arrays.get("contents"),
                arrays.get("image_uncertainty"),
            )
        except (KeyError, TypeError, InputError) as error:
            raise FormatError(f"{path} does not hold codes as this dmuh writes them: {error}") from error
