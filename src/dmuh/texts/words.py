"""words: bags of the words of a text, for lists of captions where nothing else is installed.

A feature is one word of the vocabulary: how often the text has it, damped. Words in other forms, or with the same
meaning, are other words. How rare a word is (idf) does not weigh: with it the codes of held-out captions of MS-COCO
found fewer of their like.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import DataError, FormatError
from dmuh.progress import Counting
from dmuh.texts.base import TextEncoder

_MOST = 1024  # words: those of the most training texts; more were no better
_LEAST = 2  # training texts that a word must stand in
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Words(TextEncoder):
    """The words of a text that are in the vocabulary."""

    name = "words"
    about = "the words of a sentence, of those that are frequent in training; needs nothing"

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = list(vocabulary)
        self.n_features = len(self.vocabulary)
        self._column = {word: column for column, word in enumerate(self.vocabulary)}

    @classmethod
    def create(cls, training_texts: Sequence[str]) -> Self:
        """Return the encoder of the words that stand in most of the texts."""
        n_texts = Counter(word for text in training_texts for word in set(words_of(text)))
        frequent = sorted((-n, word) for word, n in n_texts.items() if n >= _LEAST)[:_MOST]
        if not frequent:
            raise DataError(f"no word stands in {_LEAST} of the {len(training_texts):,} texts to train with")
        return cls([word for _, word in frequent])

    @classmethod
    def load(cls, card: Mapping[str, Any], folder: Path | None) -> Self:
        """Return the encoder of a card, which has all of it."""
        del folder
        vocabulary = card.get("vocabulary")
        if set(card) != {"name", "vocabulary"} or not isinstance(vocabulary, list) or not vocabulary:
            raise FormatError("the card of an encoder of words must have its vocabulary, and nothing else")
        if not all(isinstance(word, str) for word in vocabulary) or len(set(vocabulary)) < len(vocabulary):
            raise FormatError("the card of an encoder of words has a word twice, or what is no word")
        return cls(vocabulary)

    def card(self) -> dict[str, Any]:
        """Return the vocabulary."""
        return {"name": self.name, "vocabulary": self.vocabulary}

    def files(self) -> dict[str, bytes]:
        """Return no files: the card has all."""
        return {}

    def _encode(self, texts: Sequence[str], count: Counting) -> NDArray[np.float32]:
        features = np.zeros((len(texts), self.n_features), np.float32)
        with count("reading texts", len(texts)) as advance:
            for row, text in zip(features, texts, strict=True):
                known = Counter(self._column[word] for word in words_of(text) if word in self._column)
                weights = {column: 1 + math.log(n) for column, n in known.items()}
                length = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
                for column, weight in weights.items():
                    row[column] = weight / length
                advance(1)
        return features


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, without punctuation.

    >>> from dmuh.texts.words import words_of
    >>> words_of("A man's dog, on the SOFA!")
    ['a', "man's", 'dog', 'on', 'the', 'sofa']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).replace("’", "'").casefold())
