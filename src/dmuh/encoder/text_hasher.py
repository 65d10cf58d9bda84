"""TextHasher: sentences to codes, in the same Hamming space as images."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.encoder.calibration import DEFAULT_SURE, Calibration
from dmuh.encoder.curve import Curve
from dmuh.encoder.known_texts import KnownTexts
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import InputError

if TYPE_CHECKING:
    from dmuh.texts import TextEncoder

_LONGEST = 10_000  # characters of a text


class TextHasher:
    """The part of a model that gives texts their codes; ONNX Runtime runs it, without torch.

    network  from the features of a text to outputs and uncertainty
    about    the card of the model, which has `texts`
    folder   where an exported model keeps its text encoder; None for a run, whose encoder is installed
    known    vectors of training texts (m, n_features), where the model keeps some
    """

    def __init__(
        self,
        network: OnnxNetwork,
        about: Mapping[str, Any],
        folder: Path | None,
        known: NDArray[np.float32] | None = None,
    ) -> None:
        self._network = network
        self._about = about
        self._folder = folder
        card = about["texts"]
        least = card.get("least_likeness")
        self.known = None if known is None or least is None else KnownTexts(known, float(least))
        self.calibration = Calibration.of_texts(about)
        # what the distance from an image to texts means, by the name of the ranking
        self.match_of_images = {name: Curve.from_dict(curve) for name, curve in card.get("match_of_images", {}).items()}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle it without the encoder, which is loaded again where it is needed."""
        return {key: value for key, value in vars(self).items() if key != "encoder"}

    @cached_property
    def encoder(self) -> "TextEncoder | None":
        """What gives texts their features; None where the model takes features."""
        from dmuh.texts import load_text_encoder

        card = self._about["texts"]["encoder"]
        return None if card is None else load_text_encoder(card, self._folder)

    @property
    def takes_sentences(self) -> bool:
        """Whether it takes sentences, rather than their features."""
        return self._about["texts"]["encoder"] is not None

    def encode(self, texts: Sequence[str] | NDArray[np.float32], ids: Any = None, sure: int = DEFAULT_SURE) -> Codes:
        """Return the codes of sentences, or of their features (n, n_features) where the model takes these.

        Nothing is sure of a sentence that is like none the model learned from, or has no word that its encoder knows.
        """
        features = self._features(texts)
        unknown = (features == 0).all(axis=1)
        if self.known is not None:
            unknown |= self.known.strange(features)
        return self.calibration.codes(self._network.run(features), ids, sure, contents=False, unknown=unknown)

    def _features(self, texts: Sequence[str] | NDArray[np.float32]) -> NDArray[np.float32]:
        if self.encoder is None:
            features = np.asarray(texts)
            if features.ndim != 2 or features.shape[1:] != self._network.shape or features.dtype.kind not in "fiu":
                raise InputError(
                    f"this model takes features of texts (n, {self._network.shape[0]}), got {features.dtype} of shape "
                    f"{features.shape}"
                )
            return features.astype(np.float32)
        sentences = list(texts)
        for number, text in enumerate(sentences):
            if not isinstance(text, str):
                raise InputError(f"texts must be sentences, got {type(text).__name__} as number {number}")
            if not text.strip():
                raise InputError(f"a text must say something, got an empty one as number {number}")
            if len(text) > _LONGEST:
                raise InputError(f"a text must have at most {_LONGEST:,} characters, got {len(text):,}")
        return self.encoder.encode(sentences)
