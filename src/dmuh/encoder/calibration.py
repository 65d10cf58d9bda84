"""Calibration: what a network's outputs say about how sure its bits are, as images that did not train have shown.

A bit *turns over* where an image does not get the bit that most images like it have, those that share a label with it.
How often that happens depends on how far the output is from 0, and on whether the bit is one that images with the rest
of this code have; `dmuh.trainer.calibrating` counts both on images that did not train. What it finds is kept in the
card of the model and used here, without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.encoder.curve import Curve
from dmuh.encoder.kinds import Kinds
from dmuh.encoder.recoding import Recoding
from dmuh.errors import ConfigError, FormatError

SURE = (0, 1, 2)  # bits of sureness per bit that can be chosen
DEFAULT_SURE = 1


@dataclass(frozen=True, eq=False)
class Grades:
    """Levels of sureness: where they part, and what each is worth.

    thresholds  float32 (n_bits, 2^sure - 1), falling: the level of a bit is how many of these its uncertainty is below
    worth       float32 (n_bits, 2^sure): the mean of 1 - 2·uncertainty of a level's bits, rising
    """

    thresholds: NDArray[np.float32]
    worth: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Calibration:
    """How sure the bits of one network are.

    turnover  the probability that a bit turns over, by the number that the source of uncertainty gives; None: assumed
    grades    the levels of 1 and of 2 bits of sureness
    match     the probability that two images share a label, by their distance: "hamming", and "soft-0" to "soft-2" for
              soft ranking of codes with as many bits of sureness; empty without labels
    images    how many images it comes from, and `part`: which these were, validation or training images
    kinds     what the rest of a code says of a bit, and the code of what a search will find; None: nothing
    recoding  how codes are placed around those of kinds, before all else; None: bits are the signs of the outputs
    """

    turnover: Curve | None
    grades: Mapping[int, Grades]
    match: Mapping[str, Curve]
    images: int
    part: str
    kinds: Kinds | None = None
    recoding: Recoding | None = None

    @classmethod
    def assumed(cls) -> "Calibration":
        """Return what is taken of a network that was never calibrated: p = 1 / (1 + e^(2|h|)), and no levels."""
        return cls(None, {}, {}, 0, "")

    def match_by_ranking(self, sure: int) -> dict[str, Curve]:
        """Return by ranking what the distance to codes with `sure` bits of sureness per bit means."""
        names = {"hamming": "hamming", "soft": f"soft-{sure}"}
        return {ranking: self.match[name] for ranking, name in names.items() if name in self.match}

    def image_uncertainty(self, results: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32] | None:
        """Return how unsure each image is as a whole (n,); None where no more is known than how sure its bits are."""
        if self.turnover is None or self.kinds is None:
            return None
        return self.kinds.image_uncertainty(results["outputs"], self.turnover(results["uncertainty"]))

    def uncertainty(self, results: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the probability that each bit turns over (n, n_bits), from what the network gave for n images."""
        if self.turnover is None:
            return (0.5 - 0.5 * np.tanh(np.abs(results["outputs"]))).astype(np.float32)
        found = self.turnover(results["uncertainty"])
        if self.kinds is not None:
            found = self.kinds.uncertainty(results["outputs"], found)
        return np.clip(found, 0, 0.5).astype(np.float32)

    def codes(
        self,
        results: Mapping[str, NDArray[np.float32]],
        ids: Any = None,
        sure: int = DEFAULT_SURE,
        *,
        contents: bool = True,
        unknown: NDArray[np.bool_] | None = None,
    ) -> Codes:
        """Return the codes of what the network gave for n images, with `sure` bits of sureness per bit.

        contents  whether they carry what identical images are found by; a text is identical to none
        unknown   (n,): those of which the network was told nothing, whose bits are tosses of a coin
        """
        outputs = results["outputs"] if self.recoding is None else self.recoding.outputs(results["outputs"])
        digested, results = results["outputs"], {**results, "outputs": outputs}
        uncertainty = self.uncertainty(results)
        if unknown is not None:
            uncertainty = np.where(unknown[:, None], np.float32(0.5), uncertainty)
        codes = Codes.from_outputs(outputs, uncertainty, ids)
        codes = codes.with_contents(digested) if contents else codes
        codes = codes.with_image_uncertainty(self.image_uncertainty(results))
        if sure not in SURE:
            raise ConfigError(f"sure must be 0, 1 or 2, got {sure}")
        if not sure or sure not in self.grades:
            return codes
        return codes.graded(self.grades[sure].thresholds, self.grades[sure].worth)

    def kept(self, codes: Codes, sure: int) -> Codes:
        """Return codes with their exact uncertainty as an index keeps them, with `sure` bits of sureness per bit."""
        if not sure or sure not in self.grades:
            return codes.plain()
        return codes.graded(self.grades[sure].thresholds, self.grades[sure].worth).stored()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the card of a model."""
        grades = {
            str(sure): {"thresholds": _plain(levels.thresholds), "worth": _plain(levels.worth)}
            for sure, levels in self.grades.items()
        }
        match = {ranking: curve.to_dict() for ranking, curve in self.match.items()}
        turnover = None if self.turnover is None else self.turnover.to_dict()
        parts = {"kinds": self.kinds, "recoding": self.recoding}
        return {
            "turnover": turnover, "grades": grades, "match": match, "images": self.images, "part": self.part,
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }  # fmt: skip

    @classmethod
    def of_texts(cls, about: Mapping[str, Any]) -> "Calibration":
        """Return how sure the bits of texts are, from the card of a model for images and texts."""
        return cls.of_card({**about["texts"], "n_bits": about["n_bits"]})

    @classmethod
    def of_card(cls, about: Mapping[str, Any]) -> "Calibration":
        """Return the calibration in the card of a model, or what is assumed where the card has none."""
        values = about.get("calibration")
        if values is None:
            return cls.assumed()
        try:
            n_bits = int(about["n_bits"])
            grades = {int(sure): _grades(levels, int(sure), n_bits) for sure, levels in values["grades"].items()}
            match = {ranking: Curve.from_dict(curve) for ranking, curve in values["match"].items()}
            turnover = None if values["turnover"] is None else Curve.from_dict(values["turnover"])
            kinds = Kinds.from_dict(values["kinds"], n_bits) if "kinds" in values else None
            recoding = Recoding.from_dict(values["recoding"], n_bits) if "recoding" in values else None
            return cls(turnover, grades, match, int(values["images"]), str(values["part"]), kinds, recoding)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"the model's card has a calibration that cannot be used: {error}") from error


def _grades(values: Mapping[str, Any], sure: int, n_bits: int) -> Grades:
    thresholds, worth = (np.asarray(values[name], np.float32) for name in ("thresholds", "worth"))
    if thresholds.shape != (n_bits, 2**sure - 1) or worth.shape != (n_bits, 2**sure) or sure not in SURE[1:]:
        raise ValueError(f"levels of {sure} bits do not fit {n_bits} bits")
    return Grades(thresholds, worth)


def _plain(array: NDArray[np.float32]) -> list[list[float]]:
    return [[round(float(value), 6) for value in row] for row in array]
