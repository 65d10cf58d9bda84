"""Kinds of images: what the kind that a code seems to belong to says of its bits, and of what a search will find."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.encoder.curve import Curve

Floats = NDArray[np.float64]

_TOGETHER = 65_536  # images whose kinds are weighed at a time


@dataclass(frozen=True, eq=False)
class Prospects:
    """How well a search is expected to do from an image whose kind is known with some probability.

    power      of the likelihood of a kind: bits of a code turn over together, so that each tells less than it would
               alone; 1 takes them as independent
    precision  float64 (m, m): the average precision of a search from the code of one kind where images like those of
               another are the right ones, by images that did not train
    line       average precision = line[0] + line[1]·score, by the same images; line[1] is above 0
    """

    power: float
    precision: Floats
    line: tuple[float, float]

    def scores(self, kind: Floats) -> Floats:
        """Return the mean of `precision` over where an image's code stands and what it shows, by its kinds (n, m)."""
        found: Floats = ((kind @ self.precision) * kind).sum(axis=1)
        return found

    def expected(self, kind: Floats) -> Floats:
        """Return the average precision (n,) that is expected of images by the probability of each kind (n, m)."""
        found: Floats = np.clip(self.line[0] + self.line[1] * self.scores(kind), 0, 1)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        line = [round(value, 6) for value in self.line]
        return {"power": self.power, "precision": self.precision.round(3).tolist(), "line": line}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], n_kinds: int) -> "Prospects":
        """Return what `to_dict` gave; what is none is refused."""
        power, precision = float(values["power"]), np.asarray(values["precision"], np.float64)
        begin, slope = (float(value) for value in values["line"])
        sound = precision.shape == (n_kinds, n_kinds) and np.isfinite([power, begin, slope]).all()
        if not (sound and precision.min() >= 0 and precision.max() <= 1 and power > 0 and slope > 0):
            raise ValueError(f"prospects must have a precision for each two of {n_kinds} kinds, and a rising line")
        return cls(power, precision, (begin, slope))


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of images, such as those of a class, and what the kind that a code belongs to says of its bits.

    signs      int8 (m, n_bits): the bits that most images of a kind have, -1 or 1, or 0 where it is a draw
    share      float64 (m,): how many of the images are of a kind
    weight     of the kind beside the bit's own probability of turning over
    turnover   the probability that a bit turns over, by both together
    prospects  what a search from an image of these kinds will find; None: not known
    """

    signs: NDArray[np.int8]
    share: Floats
    weight: float
    turnover: Curve
    prospects: Prospects | None = None

    def uncertainty(self, outputs: NDArray[np.float32], alone: Floats) -> Floats:
        """Return the probability that bits turn over (n, n_bits), from what it is by the bits alone."""
        return self.turnover(self.scores(outputs, alone))

    def image_uncertainty(self, outputs: NDArray[np.float32], alone: Floats) -> NDArray[np.float32] | None:
        """Return how far from 1 the average precision of a search from each image is expected to be (n,), if known."""
        if self.prospects is None:
            return None
        found = np.empty(len(outputs), np.float32)
        for first in range(0, len(outputs), _TOGETHER):
            part = slice(first, first + _TOGETHER)
            kind = self.probabilities(outputs[part], alone[part], self.prospects.power)
            found[part] = 1 - self.prospects.expected(kind)
        return found

    def probabilities(self, outputs: NDArray[np.float32], alone: Floats, power: float = 1.0) -> Floats:
        """Return the probability of each kind (n, m): that its bits, turning over by themselves, give this code."""
        bits = np.where(outputs >= 0, 1.0, -1.0)
        unsure = np.clip(alone, 0.01, 0.49)
        each = (bits * np.log(1 / unsure - 1) / 2) @ self.signs.astype(np.float64).T
        likelihood = power * each + np.log(self.share)
        kind: Floats = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        kind /= kind.sum(axis=1, keepdims=True)
        return kind

    def scores(self, outputs: NDArray[np.float32], alone: Floats) -> Floats:
        """Return a number (n, n_bits) that rises where a bit is unsure by itself and is not one that its kind has.

        The kind of an image is not known: each counts with its probability. A coin toss stays one, whatever the kind.
        """
        bits = np.where(outputs >= 0, 1.0, -1.0)
        kind = self.probabilities(outputs, alone)
        differing = _log_odds((1 - bits * (kind @ self.signs.astype(np.float64))) / 2)
        found: Floats = _log_odds(2 * alone) + self.weight * (1 - 2 * alone) * differing
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: a kind's bits are written as +, - and 0."""
        signs = ["".join("-0+"[sign + 1] for sign in row) for row in self.signs.tolist()]
        prospects = {} if self.prospects is None else {"prospects": self.prospects.to_dict()}
        return {
            "signs": signs,
            "share": self.share.round(6).tolist(),
            "weight": self.weight,
            "turnover": self.turnover.to_dict(),
            **prospects,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], n_bits: int) -> "Kinds":
        """Return what `to_dict` gave; kinds that are none are refused."""
        signs = np.array([["-0+".index(sign) - 1 for sign in row] for row in values["signs"]], np.int8)
        share, weight = np.asarray(values["share"], np.float64), float(values["weight"])
        if signs.ndim != 2 or signs.shape != (len(share), n_bits) or not (share > 0).all() or not np.isfinite(weight):
            raise ValueError(f"kinds of images must have {n_bits} bits and a share each")
        prospects = Prospects.from_dict(values["prospects"], len(signs)) if "prospects" in values else None
        return cls(signs, share, weight, Curve.from_dict(values["turnover"]), prospects)


def _log_odds(probability: Floats) -> Floats:
    within = np.clip(probability, 0.004, 0.996)
    found: Floats = np.log(within / (1 - within))
    return found
