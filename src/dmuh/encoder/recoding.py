"""Codes that say, by how many bits they are away from the code of a kind, how sure an image is of that kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Outputs = NDArray[np.float32]

_UNITS = 2**15  # of an output: sums of whole numbers are exact, so that a code never depends on its batch
_SMALLEST = np.finfo(np.float32).tiny
_TOGETHER = 65_536  # images at a time


@dataclass(frozen=True, eq=False)
class Recoding:
    """How codes are placed around the codes of kinds of images, such as those of a class.

    The signs of the outputs are away from the code of an image's kind by as many bits as happen to turn over, which
    says little of how sure the image is of its kind; all its outputs together say more. So an image gets the code of
    the kind that its outputs agree with most, but for some bits, those that agree with it least: none where no other
    kind is near, more the nearer the next one is. By Hamming distance the sure images of a kind then come first, for
    sure queries and for others.

    signs     int8 (m, n_bits), -1 or 1: the code of each of m ≥ 2 kinds
    steps     float64 (r,), falling: how many of these the lead of the likeliest kind before the next one is below, so
              many bits are not its own
    farthest  images whose signs are more bits than this away from the code of their likeliest kind keep them: they are
              of no kind that is known
    """

    signs: NDArray[np.int8]
    steps: Floats
    farthest: int

    def outputs(self, outputs: Outputs) -> Outputs:
        """Return outputs (n, n_bits) of the same sizes whose signs are the code."""
        parts = [outputs[first : first + _TOGETHER] for first in range(0, len(outputs), _TOGETHER)]
        return np.concatenate([outputs[:0], *(self._recoded(part) for part in parts)])

    def _recoded(self, outputs: Outputs) -> Outputs:
        kind, lead = self.likeliest(outputs)
        signs = self.signs[kind].astype(np.float32)
        changed = (lead[:, None] < self.steps).sum(axis=1)
        agreeing = outputs * signs
        place = np.argsort(np.argsort(agreeing, axis=1, kind="stable"), axis=1, kind="stable")
        code = np.where(place < changed[:, None], -signs, signs)
        known = ((agreeing < 0).sum(axis=1) <= self.farthest)[:, None]
        found: Outputs = np.where(known, code * np.maximum(np.abs(outputs), _SMALLEST), outputs)
        return found

    def likeliest(self, outputs: Outputs) -> tuple[NDArray[np.int64], Floats]:
        """Return the kind (n,) that the outputs (n, n_bits) agree with most, and its lead before the next (n,)."""
        whole = np.rint(np.tanh(outputs.astype(np.float64)) * _UNITS)
        agreement = whole @ self.signs.T.astype(np.float64)
        best = np.sort(agreement, axis=1)[:, -2:]
        return agreement.argmax(axis=1), (best[:, 1] - best[:, 0]) / _UNITS

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: a kind's bits are written as + and -."""
        signs = ["".join("-+"[sign > 0] for sign in row) for row in self.signs.tolist()]
        return {"signs": signs, "steps": self.steps.tolist(), "farthest": self.farthest}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], n_bits: int) -> "Recoding":
        """Return what `to_dict` gave; what is none is refused."""
        signs = np.array([["-+".index(sign) * 2 - 1 for sign in row] for row in values["signs"]], np.int8)
        steps, farthest = np.asarray(values["steps"], np.float64), int(values["farthest"])
        if signs.ndim != 2 or signs.shape[1] != n_bits or len(signs) < 2:
            raise ValueError(f"a recoding must have the codes of two kinds or more, of {n_bits} bits")
        if steps.ndim != 1 or len(steps) > n_bits or not np.isfinite(steps).all() or (np.diff(steps) > 0).any():
            raise ValueError("the steps of a recoding must be numbers that do not rise, one per bit at most")
        return cls(signs, steps, farthest)
