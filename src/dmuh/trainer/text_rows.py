"""The texts of a data set as rows of features, which are computed once and kept."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets import Dataset
from dmuh.errors import FormatError
from dmuh.files import load_arrays, locked, save_arrays
from dmuh.machine import cache_folder
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions, Split

if TYPE_CHECKING:
    from dmuh.texts import TextEncoder

log = logging.getLogger(__name__)

_KIND, _VERSION = "dmuh features of texts", 1


@dataclass(frozen=True, eq=False)
class TextRows:
    """Features float32 (n_texts, n_features) of all texts, and the position (n_texts,) of the image each is about.

    The texts of an image stand together, and in the order of the images.
    """

    features: NDArray[np.float32]
    image: Positions

    def of(self, positions: Positions) -> Positions:
        """Return the rows of all texts about the images at these positions, in the order of the texts."""
        return np.flatnonzero(np.isin(self.image, positions))

    def first(self, positions: Positions) -> Positions:
        """Return the row of the first text about each image (n,)."""
        return np.searchsorted(self.image, positions)

    def drawn(self, positions: Positions, chances: NDArray[np.float64]) -> Positions:
        """Return the row of one text about each image (n,), chosen among its texts by a number from 0 to 1 each."""
        first, end = (np.searchsorted(self.image, positions, side=side) for side in ("left", "right"))
        rows: Positions = first + ((end - first) * chances).astype(np.int64)
        return rows

    def split(self, split: Split) -> Split:
        """Return a split of images as one of rows: texts stand where their images do."""
        return Split(*(self.of(part) for part in (split.train, split.validation, split.query, split.database)))


def text_rows(data: Dataset, encoder: "TextEncoder | None", count: Counting = uncounted) -> TextRows:
    """Return the rows of a data set's texts; texts that are feature vectors already need no encoder."""
    assert data.texts is not None, "the trainer checks that there are texts"
    if isinstance(data.texts, np.ndarray):
        return TextRows(data.texts, np.arange(len(data)))
    assert encoder is not None, "sentences need an encoder"
    flat = [text for texts in data.texts for text in texts]
    image = np.repeat(np.arange(len(data)), [len(texts) for texts in data.texts])
    return TextRows(_features(flat, encoder, count), image)


def training_texts(data: Dataset, split: Split) -> list[str]:
    """Return the sentences about the training images."""
    if data.texts is None or isinstance(data.texts, np.ndarray):
        return []
    return [text for position in split.train.tolist() for text in data.texts[position]]


def _features(texts: list[str], encoder: "TextEncoder", count: Counting) -> NDArray[np.float32]:
    """Return the features (n, n_features) of texts, from the cache where they were computed before."""
    digest = hashlib.sha256(repr((encoder.name, encoder.card(), len(texts))).encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    file = cache_folder() / "texts" / f"{digest.hexdigest()[:24]}.safetensors"
    with locked(file.with_suffix(".lock"), lambda: log.info("waiting for another process that reads the same texts")):
        kept = _kept(file, len(texts), encoder.n_features)
        if kept is not None:
            return kept
        features = encoder.encode(texts, count=count)
        save_arrays(file, _KIND, _VERSION, {"features": features})
    return features


def _kept(file: Path, n_texts: int, n_features: int) -> NDArray[np.float32] | None:
    if not file.is_file():
        return None
    try:
        features = load_arrays(file, _KIND, _VERSION).arrays["features"]
    except FormatError as error:
        log.warning("%s; the texts are read again", error)
        return None
    return features.astype(np.float32) if features.shape == (n_texts, n_features) else None
