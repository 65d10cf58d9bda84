"""How sure the bits of texts are, and what the distance between a text and an image means."""

from typing import Any

from dmuh.encoder.calibration import SURE
from dmuh.encoder.known_texts import KnownTexts
from dmuh.network import UncertaintySource
from dmuh.trainer.calibrating import Calibrated, calibrated, match_curves, near_by_angle, share_a_label
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.measuring import compute_outputs
from dmuh.trainer.pairs import TextSide

_FEWEST = 16  # texts that did not train


def calibrate_texts(
    context: TrainingContext, images: Calibrated, texts: TextSide, source: UncertaintySource
) -> dict[str, Any]:
    """Return for the model's card how sure the bits of texts are, and what their distances to images mean.

    By the first texts of the images that the images' bits were calibrated on. `calibration` is that of texts, whose
    distances are those from a text to images; `match_of_images` has those from an image to texts.
    """
    rows = texts.rows.first(images.by.positions)
    text = compute_outputs(texts.network, source, texts.inputs, rows)
    assert text.uncertainty is not None, "there is an uncertainty where it has a source"
    has_labels = bool(context.data.classes)
    similar = (
        share_a_label(context.data.labels[images.by.positions])
        if has_labels
        else near_by_angle(texts.rows.features[rows])
    )
    own = calibrated(text.outputs, text.uncertainty, similar, has_labels=has_labels)
    card = {**own.to_dict(), "part": images.calibration.part, "match": {}}
    if not has_labels:
        return {"calibration": card, "match_of_images": {}}
    text_codes, image_codes = (
        {sure: found.codes(by, sure) for sure in SURE} for found, by in ((text, own), (images.by, images.calibration))
    )
    to_images, to_texts = (
        {name: curve.to_dict() for name, curve in match_curves(query, database, similar).items()}
        for query, database in ((text_codes, image_codes), (image_codes, text_codes))
    )
    return {"calibration": {**card, "match": to_images}, "match_of_images": to_texts}


def known_texts(context: TrainingContext, texts: TextSide) -> KnownTexts | None:
    """Return texts to tell strange ones by, where there are some that did not train to learn from what is strange."""
    split = texts.rows.split(context.split)
    if len(split.validation) < _FEWEST:
        return None
    return KnownTexts.fit(texts.rows.features[split.train], texts.rows.features[split.validation])
