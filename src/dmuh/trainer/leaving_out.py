"""Images whose labels are probably wrong are left out of the training, and doubtful ones take part less often.

Every training and validation image is judged by fits to others (`dmuh.wrong_labels`), on the features of the frozen
backbone. A training image takes part in an epoch with the probability that its labels are right, and not at all where
that is small; a validation image takes part where it is a half or more. (To train images with the labels that are
probably right instead was tried, and gave worse codes: some of these are wrong too.) Rare classes lose most by wrong
labels, so the more there are, the less often images of frequent classes take part. What was found is kept in the run
folder: a run that is resumed goes on by the same.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.datasets import Labels
from dmuh.features import unit_vectors
from dmuh.protocols import Positions
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.setup import fresh_network, training_inputs
from dmuh.wrong_labels import find_suspects

log = logging.getLogger(__name__)

_FEWEST = 100  # labelled images below which too little is known of each to call its label wrong
_PROBABLY = 0.5  # from which on a validation image is left out
_VERY = 0.7  # and a training image, which up to there takes part in some epochs


@dataclass(frozen=True, eq=False)
class Judged:
    """What was found of labels.

    left_out  which images (n,) take no part at all
    absence   how probably each image (images,) takes no part in an epoch; None in a run of a dmuh that did not know it
    """

    left_out: Positions
    absence: NDArray[np.float32] | None


def without_wrong_labels(context: TrainingContext, *, goes_on: bool) -> tuple[TrainingContext, Judged | None]:
    """Return the context with the images that train, and what was found, where the settings ask for it.

    A run that goes on takes what was found when it began.
    """
    if context.settings.wrong_labels != "leave-out" or not context.data.classes:
        return context, None
    kept = context.run.load_left_out() if goes_on else None
    if kept is None and goes_on and not context.run.begun_in_vain:
        return context, None  # begun by a dmuh that left none out
    judged = _judged(context) if kept is None else Judged(*kept)
    split = context.split
    train, validation = (np.setdiff1d(part, judged.left_out) for part in (split.train, split.validation))
    return replace(context, split=replace(split, train=train, validation=validation), absence=judged.absence), judged


def _judged(context: TrainingContext) -> Judged:
    """Return how probably the labels of training and validation images are wrong, and which of these are left out."""
    data, group, split = context.data, context.group, context.split
    positions = np.union1d(split.train, split.validation)
    labelled = positions[data.labels[positions].any(axis=1)]
    doubt = np.zeros(len(data), np.float32)
    if len(labelled) < _FEWEST or np.count_nonzero(data.labels[labelled].any(axis=0)) < 2:
        return Judged(positions[:0], doubt)
    vectors, read = _features(context, labelled)
    suspects = find_suspects(vectors, data.labels[read], count=context.reading.progress)
    doubt[read[suspects.positions]] = suspects.probability
    # processes may differ in a last digit: all take what the first one found
    doubt = group.gather(torch.from_numpy(doubt).to(group.device)[None])[0].cpu().numpy()
    bounds = ((split.train, _VERY), (split.validation, _PROBABLY))
    left_out = np.sort(np.concatenate([part[doubt[part] >= bound] for part, bound in bounds]))
    train, absence = np.setdiff1d(split.train, left_out), doubt.copy()
    absence[train] = absent(doubt[train], data.labels[train], float(doubt[split.train].mean()))
    log.info(
        "labels: %s of %s training images are left out, as their labels are probably wrong, and others take part the "
        "more often the more probably theirs are right (dmuh review lists them; --set wrong_labels=keep keeps them)",
        f"{len(left_out):,}",
        f"{len(positions):,}",
    )
    return Judged(left_out, absence)


def absent(doubt: NDArray[np.float32], labels: Labels, wrong: float) -> NDArray[np.float32]:
    """Return how probably images take no part in an epoch (n,), by how probably their labels (n, classes) are wrong.

    An image of a class with c images, counted by how probably their labels are right, takes part with the probability
    that its own are right, times (m / c)^wrong where c is above m, the median of c over the classes. `wrong` is the
    share of all labels that are wrong: hardly anything changes where that is small. With many wrong labels few images
    of a rare class are left, and those of frequent classes that were taken for it weigh more beside them. Where images
    have several labels, nothing changes.

    >>> labels = np.eye(2, dtype=np.uint8)[np.repeat([0, 1], [80, 20])]
    >>> absent(np.zeros(100, np.float32), labels, wrong=0.5)[[0, 99]].round(2)  # 1 - (50 / 80)^0.5
    array([0.21, 0.  ], dtype=float32)
    """
    present = 1 - doubt
    images = present @ labels  # (classes,)
    if (labels.sum(axis=1) > 1).any() or not images.any():
        return doubt
    more = np.maximum(images / max(float(np.median(images[images > 0])), 1.0), 1.0)
    share: NDArray[np.float32] = np.where(labels == 1, more**-wrong, 1).min(axis=1).astype(np.float32)
    return 1 - present * share


@torch.inference_mode()
def _features(context: TrainingContext, positions: Positions) -> tuple[NDArray[np.float32], Positions]:
    """Return the features float32 (n, n_features) of length 1 of those images that can be read, and which these are."""
    network = fresh_network(context.config, context.data, context.group.device)
    batches = [positions[first : first + 512] for first in range(0, len(positions), 512)]
    with training_inputs(context, network) as inputs:
        found = [(network.features(batch.activations), batch.positions) for batch in inputs.batches(batches)]
    rows = torch.cat([features for features, _ in found]).float().cpu().numpy()
    return unit_vectors(rows), np.concatenate([read for _, read in found])
