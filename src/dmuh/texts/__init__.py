"""Encoders of texts by name: from sentences to feature vectors, without torch.

A new one is a file here with a TextEncoder, and a line in TEXT_ENCODERS.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmuh.errors import ConfigError, FormatError, unknown
from dmuh.texts.base import TextEncoder
from dmuh.texts.minilm import MiniLM
from dmuh.texts.words import Words

__all__ = ["TEXT_ENCODERS", "TextEncoder", "create_text_encoder", "load_text_encoder"]

TEXT_ENCODERS: dict[str, type[TextEncoder]] = {"minilm": MiniLM, "words": Words}


def create_text_encoder(name: str, training_texts: Sequence[str]) -> TextEncoder:
    """Return the encoder of this name; one that learns, learns from the texts to train with.

    >>> from dmuh.texts import create_text_encoder
    >>> encoder = create_text_encoder("words", ["A cat on a sofa.", "A dog on a sofa.", "The cat and the dog"])
    >>> encoder.encode(["a dog", "Cats"]).shape
    (2, 5)
    """
    if name not in TEXT_ENCODERS:
        raise ConfigError(unknown("encoder of texts", name, TEXT_ENCODERS))
    return TEXT_ENCODERS[name].create(training_texts)


def load_text_encoder(card: Mapping[str, Any], folder: Path | None = None) -> TextEncoder:
    """Return the encoder that a card describes, by its `files` in a folder, or by what is installed without one."""
    kind = TEXT_ENCODERS.get(str(card.get("name")))
    if kind is None:
        raise FormatError(unknown("encoder of texts", str(card.get("name")), TEXT_ENCODERS))
    return kind.load(card, folder)
