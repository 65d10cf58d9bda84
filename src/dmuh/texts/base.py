"""TextEncoder: from sentences to feature vectors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import InputError
from dmuh.progress import Counting, uncounted


class TextEncoder(ABC):
    """Gives sentences feature vectors of length 1; what a text gives never depends on the texts beside it.

    name        its name in TEXT_ENCODERS
    about       one line about it
    n_features  width of its features
    """

    name: ClassVar[str]
    about: ClassVar[str]
    n_features: int

    @classmethod
    @abstractmethod
    def create(cls, training_texts: Sequence[str]) -> Self:
        """Return an encoder for a new model."""

    @classmethod
    @abstractmethod
    def load(cls, card: Mapping[str, Any], folder: Path | None) -> Self:
        """Return the encoder of a card, by its files in the folder or by what is installed; others are refused."""

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """Return what is needed to load it again, as JSON can hold it."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Return the files that a folder must hold, by name, to load it where nothing of it is installed."""

    @abstractmethod
    def _encode(self, texts: Sequence[str], count: Counting) -> NDArray[np.float32]:
        """Return the features of texts of which no two are the same."""

    def encode(self, texts: Sequence[str], *, count: Counting = uncounted) -> NDArray[np.float32]:
        """Return the features of texts: float32 (n, n_features). A text that says nothing known may give zeros."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise InputError("texts must be a list of texts")
        # a lone surrogate, half of a character, is no text that could be encoded
        plain = [text.encode("utf-8", "replace").decode() for text in texts]
        place = {text: n for n, text in enumerate(dict.fromkeys(plain))}
        if not place:
            return np.zeros((0, self.n_features), np.float32)
        return self._encode(list(place), count)[[place[text] for text in plain]]
