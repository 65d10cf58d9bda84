"""What makes the models of a folder's codes; the one part of opening that needs torch, which it imports when asked."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dmuh.errors import needs_torch
from dmuh.features import FolderFeatures
from dmuh.features.network import BACKBONE

if TYPE_CHECKING:
    from dmuh.backbones import Backbone

log = logging.getLogger(__name__)

Labels = list[list[str]]
Fit = Callable[[Path, FolderFeatures, Labels], None]  # writes a model for images with these features and labels

_OF_A_CLASS = 5  # images that a folder must have to be taken for a class


def are_classes(counts: dict[str, int]) -> bool:
    """Return whether labels with so many images each can be learned: two or more with five images or more."""
    return sum(count >= _OF_A_CLASS for count in counts.values()) > 1


def fit_by_look(folder: Path, features: FolderFeatures, labels: Labels) -> None:
    """Write the model of codes by look, which need no labels."""
    with needs_torch("the first opening of a folder"):
        from dmuh.trainer.folder_codes import fit_look, write_model
    log.info("codes are fitted to the look of %s images …", f"{len(features):,}")
    write_model(folder, fit_look(_backbone(), BACKBONE, features.activations, labels))


def fit_by_class(folder: Path, features: FolderFeatures, labels: Labels) -> None:
    """Write the model of codes by class, trained on the labels."""
    with needs_torch("codes by class"):
        from dmuh.trainer.folder_codes import train_class, write_model
    counts = Counter(label for own in labels for label in own)
    log.info("codes are trained on %s classes …", f"{len(counts):,}")
    with _quietly("dmuh.trainer.distributed"):  # which tells of the split, of which there is none
        codes = train_class(_backbone(), BACKBONE, features.activations, labels, {})
    write_model(folder, codes)


@contextmanager
def _quietly(name: str) -> Iterator[None]:
    """Have a logger tell of errors alone."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _backbone() -> "Backbone":
    from dmuh.backbones import create_backbone

    backbone = create_backbone(BACKBONE)
    backbone.load_pretrained()
    return backbone
