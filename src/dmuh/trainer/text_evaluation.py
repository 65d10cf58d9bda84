"""The test of a run with texts: its query texts search its database of images, its query images that of texts.

By shared labels, as for images, all texts about the query images are queries and all about the database are searched.
By the pair itself, each query image and its first text look for one another among the query images and their first
texts: how often the right one is among the first 1, 5 and 10 is R@1, R@5 and R@10.
"""

from typing import Any

import numpy as np

from dmuh.codes import Codes
from dmuh.config import Config
from dmuh.datasets import Dataset, Labels
from dmuh.encoder.calibration import DEFAULT_SURE, SURE, Calibration
from dmuh.files import ArrayFile
from dmuh.metrics import evaluate
from dmuh.network import choose_device, load_text_networks
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions, Split
from dmuh.texts import load_text_encoder
from dmuh.trainer.inputs import CachedInputs
from dmuh.trainer.measuring import compute_outputs
from dmuh.trainer.text_rows import TextRows, text_rows

TO_IMAGES, TO_TEXTS = "text_to_image", "image_to_text"
TOP = 50  # where MAP@50 cuts the ranking
_RECALLS = (1, 5, 10)


class TextCodes:
    """The codes of a data set's texts, by the texts' network of a run's model."""

    def __init__(self, model: ArrayFile, config: Config, data: Dataset, count: Counting = uncounted) -> None:
        card = model.metadata["texts"]
        encoder = None if card["encoder"] is None else load_text_encoder(card["encoder"])
        self.rows: TextRows = text_rows(data, encoder, count)
        self.calibration = Calibration.of_texts(model.metadata)
        self._network, self._source = load_text_networks(model, choose_device(config.training.device))

    def __call__(self, rows: Positions, sure: int = DEFAULT_SURE) -> Codes:
        """Return the codes of the texts in these rows, whose ids are the rows."""
        inputs = CachedInputs(self.rows.features, None, self._network.device, rows[:0])
        found = compute_outputs(self._network, self._source, inputs, rows)
        return found.codes(self.calibration, sure)


def evaluate_texts(
    texts: TextCodes, images: tuple[Codes, Codes], by: Calibration, labels: Labels, split: Split
) -> dict[str, dict[str, Any]]:
    """Return what texts find among images and images among texts, by direction.

    images  the codes of the query and of the database images, whose ids are positions, with their exact uncertainty
    by      how sure the bits of images are
    labels  those (N, classes) that make an image and a text relevant to one another

    Each direction has `map` and `map_at_50` by Hamming distance, `soft`, one dictionary for each number of sure bits
    that the database keeps per bit, and `recall`, by the pair itself: R@k by ranking.
    """
    rows, own = texts.rows.split(split), texts.rows.image
    query, database = images
    query_texts, database_texts = texts(rows.query), texts(rows.database)
    found = {
        TO_IMAGES: _direction(query_texts, database, by, labels[own[query_texts.ids]], labels[database.ids]),
        TO_TEXTS: _direction(
            query, database_texts, texts.calibration, labels[query.ids], labels[own[database_texts.ids]]
        ),
    }
    first = texts(texts.rows.first(query.ids))
    found[TO_IMAGES]["recall"] = _recall(first, query, by)
    found[TO_TEXTS]["recall"] = _recall(query, first, texts.calibration)
    return found


def _direction(
    query: Codes, database: Codes, by: Calibration, query_labels: Labels, database_labels: Labels
) -> dict[str, Any]:
    labels = query_labels, database_labels
    return {
        "map": evaluate(query, database, *labels, ks=(), ranking="hamming").map,
        f"map_at_{TOP}": evaluate(query, database, *labels, topk=TOP, ks=(), ranking="hamming").map,
        "soft": [
            {
                "sure": sure,
                "bits_stored": database.n_bits * (1 + sure),
                "map": evaluate(query, stored, *labels, ks=(), ranking="soft").map,
                f"map_at_{TOP}": evaluate(query, stored, *labels, topk=TOP, ks=(), ranking="soft").map,
            }
            for sure in SURE
            for stored in (by.kept(database, sure),)
        ],
        "queries": len(query),
        "database": len(database),
    }


def _recall(query: Codes, database: Codes, by: Calibration) -> dict[str, dict[str, float]]:
    """Return R@k by ranking of n queries that look for the code of their own number; ties count by their share."""
    one_each: Labels = np.eye(len(query), dtype=np.uint8)
    stored = by.kept(database, DEFAULT_SURE)
    return {
        ranking: {
            str(k): value
            for k, value in evaluate(
                query, codes, one_each, one_each, ks=_RECALLS, ranking="soft" if ranking == "soft" else "hamming"
            ).recall_at.items()
        }
        for ranking, codes in (("hamming", database), ("soft", stored))
    }
