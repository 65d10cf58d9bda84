"""words: bags of the words of a text, for lists of captions where nothing else is installed.

A feature is one word of the vocabulary: how often the text has it, damped, times how rare it is among the training
texts (tf-idf). Words in other forms, or with the same meaning, are other words.
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

_MOST = 2048  # words: those of the most training texts
_LEAST = 2  # training texts that a word must stand in
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Words(TextEncoder):
    """The words of a text, weighted by how rare they are.

    vocabulary  the words that count
    idf         the weight of each
    """

    name = "words"
    about = "the words of a sentence, weighted by how rare they are; needs nothing"

    def __init__(self, vocabulary: Sequence[str], idf: Sequence[float]) -> None:
        self.vocabulary, self.idf = list(vocabulary), list(idf)
        self.n_features = len(self.vocabulary)
        self._column = {word: column for column, word in enumerate(self.vocabulary)}

    @classmethod
    def create(cls, training_texts: Sequence[str]) -> Self:
        """Return the encoder of the words that stand in most of the texts."""
        n_texts = Counter(word for text in training_texts for word in set(words_of(text)))
        frequent = sorted((-n, word) for word, n in n_texts.items() if n >= _LEAST)[:_MOST]
        if not frequent:
            raise DataError(f"no word stands in {_LEAST} of the {len(training_texts):,} texts to train with")
        idf = [1 + math.log((1 + len(training_texts)) / (1 - minus)) for minus, _ in frequent]
        return cls([word for _, word in frequent], idf)

    @classmethod
    def load(cls, card: Mapping[str, Any], folder: Path | None) -> Self:
        """Return the encoder of a card, which has all of it."""
        del folder
        vocabulary, idf = card.get("vocabulary"), card.get("idf")
        if not (isinstance(vocabulary, list) and isinstance(idf, list) and len(vocabulary) == len(idf) > 0):
            raise FormatError("the card of an encoder of words has no vocabulary with weights")
        if len(set(map(str, vocabulary))) < len(idf) or not all(
            isinstance(weight, float) and 0 < weight < math.inf for weight in idf
        ):
            raise FormatError("the card of an encoder of words has a word twice, or weights that are not above 0")
        return cls(list(map(str, vocabulary)), idf)

    def card(self) -> dict[str, Any]:
        """Return the vocabulary and the weights."""
        return {"name": self.name, "vocabulary": self.vocabulary, "idf": self.idf}

    def files(self) -> dict[str, bytes]:
        """Return no files: the card has all."""
        return {}

    def _encode(self, texts: Sequence[str], count: Counting) -> NDArray[np.float32]:
        features = np.zeros((len(texts), self.n_features), np.float32)
        with count("reading texts", len(texts)) as advance:
            for row, text in zip(features, texts, strict=True):
                known = Counter(word for word in words_of(text) if word in self._column)
                weights = {
                    self._column[word]: (1 + math.log(n)) * self.idf[self._column[word]] for word, n in known.items()
                }
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
