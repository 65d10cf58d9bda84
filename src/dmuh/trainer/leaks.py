"""Near duplicates across a split: queries that are all but the same as a training image, by features that are kept."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets import Dataset
from dmuh.duplicates import AT_LEAST, confirm, near_features
from dmuh.features import BACKBONE, unit_vectors
from dmuh.images import GREY_SIDE, ImageReader, Preprocess, Reading, small_greys
from dmuh.network import load_networks
from dmuh.protocols import Positions
from dmuh.runs import Run, open_run
from dmuh.trainer.activation_cache import ActivationCache

_LEAST = 0.8  # cosine of the features of such pairs
_MOST = 20_000  # pairs that are looked at, those with the most alike features first


@dataclass(frozen=True)
class NearLeak:
    """How many queries are near duplicates of training images, and the first of them with its training image."""

    n: int
    query: str
    training: str

    def sentence(self, data: str) -> str:
        """Return what to say of it; `data` is where the images are."""
        place = Path(data) if Path(data).is_dir() else Path(data).parent
        return (
            f"{self.n:,} queries are near duplicates of training images, a leak that makes the result look better than "
            f"it is; the first are {self.query} and {self.training}; dmuh duplicates {place} lists such images"
        )


def find_near_leak(run: Run, dataset: Dataset) -> NearLeak | None:
    """Return the near duplicates across the split of a run, as far as features of its images are kept.

    None where there are none, or where the network is not one whose ImageNet features say so.
    """
    model = run.load_model()
    if model.metadata["freeze"] != "all" or model.metadata["backbone"] != BACKBONE or dataset.vectors is not None:
        return None
    _, _, _, split = open_run(run.path, dataset)
    network, _ = load_networks(model)
    rows, known = ActivationCache(network, dataset).complete_rows()
    query, training = (np.intersect1d(part, known)
                       for part in (split.query, np.union1d(split.train, split.validation)))  # fmt: skip
    if not len(query) or not len(training):
        return None
    pairs, cosine = near_features(
        unit_vectors(np.asarray(rows[query])), unit_vectors(np.asarray(rows[training])), _LEAST
    )
    chosen = np.argsort(-cosine, kind="stable")[:_MOST]
    pairs, cosine = pairs[chosen], cosine[chosen]
    seen = np.unique(np.concatenate([query[pairs[:, 0]], training[pairs[:, 1]]]))
    readable, greys = _greys(dataset, seen, network.backbone.preprocess.size)
    positions = np.column_stack([query[pairs[:, 0]], training[pairs[:, 1]]])
    there = np.isin(positions, readable).all(axis=1)
    compared = confirm(greys, greys, np.searchsorted(readable, positions[there]), cosine[there])
    near = positions[there][compared.likeness >= AT_LEAST]
    if not len(near):
        return None
    first = near[np.argmin(near[:, 0])]
    return NearLeak(len(np.unique(near[:, 0])), dataset.path(int(first[0])), dataset.path(int(first[1])))


def _greys(dataset: Dataset, positions: Positions, side: int) -> tuple[Positions, NDArray[np.uint8]]:
    """Return which of the images can be read, and small grey pictures of them."""
    batches = [positions[n : n + 64] for n in range(0, len(positions), 64)]
    with ImageReader(dataset.images, Preprocess(side, side), Reading(on_bad_image="skip")) as reader:
        read = [(batch.positions, small_greys(batch.pixels)) for batch in reader.batches(batches)]
    if not read:
        return positions[:0], np.empty((0, GREY_SIDE, GREY_SIDE), np.uint8)
    return np.concatenate([part[0] for part in read]), np.concatenate([part[1] for part in read])
