"""CodeModel: the model of a folder's codes, from pixels and from features."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.calibration import DEFAULT_SURE
from dmuh.errors import FormatError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CodeModel:
    """A model: `hasher` takes images, `head` the features of images; both give an image the same code."""

    hasher: Hasher
    head: Hasher

    @classmethod
    def load(cls, folder: Path) -> "CodeModel | None":
        """Load the model that is kept in a folder; None if there is none, or one that was not written to its end."""
        if not Bundle(folder).exists:
            return None
        try:
            model = cls(Hasher.load(folder), Hasher.load(folder / "head"))
        except FormatError as error:
            log.warning("%s: the codes are fitted again", error)
            return None
        return model if model.hasher.digest == model.head.digest else None

    def encode(self, activations: NDArray[np.float32]) -> Codes:
        """Return the codes of images from their features (n, n_features); ids are positions."""
        return self.head.encode(activations, sure=DEFAULT_SURE)
