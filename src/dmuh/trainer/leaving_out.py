"""Images whose labels are probably wrong are left out of the training.

Every training and validation image is judged by fits to others (`dmuh.wrong_labels`), on the features of the frozen
backbone; one whose labels are wrong with a probability of a half or more takes no part. (To train them with the labels
that are probably right instead was tried, and gave worse codes: a third of these are wrong too.) Which images were left
out is kept in the run folder: a run that is resumed goes on without the same ones.
"""

import logging
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.features import unit_vectors
from dmuh.protocols import Positions
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.setup import fresh_network, training_inputs
from dmuh.wrong_labels import find_suspects

log = logging.getLogger(__name__)

_FEWEST = 100  # labelled images below which too little is known of each to call its label wrong
_PROBABLY = 0.5


def without_wrong_labels(context: TrainingContext, *, goes_on: bool) -> tuple[TrainingContext, Positions | None]:
    """Return the context with the images that train, and which are left out, where the settings ask for it.

    A run that goes on leaves out what it left out when it began.
    """
    if context.settings.wrong_labels != "leave-out" or not context.data.classes:
        return context, None
    left_out = context.run.load_left_out() if goes_on else None
    if left_out is None and goes_on and not context.run.begun_in_vain:
        return context, None  # begun by a dmuh that left none out
    if left_out is None:
        left_out = _suspicious(context)
    split = context.split
    train, validation = (np.setdiff1d(part, left_out) for part in (split.train, split.validation))
    return replace(context, split=replace(split, train=train, validation=validation)), left_out


def _suspicious(context: TrainingContext) -> Positions:
    """Return the training and validation images, ascending, whose labels are probably wrong."""
    data, group = context.data, context.group
    positions = np.union1d(context.split.train, context.split.validation)
    labelled = positions[data.labels[positions].any(axis=1)]
    if len(labelled) < _FEWEST or np.count_nonzero(data.labels[labelled].any(axis=0)) < 2:
        return positions[:0]
    vectors, read = _features(context, labelled)
    suspects = find_suspects(vectors, data.labels[read], count=context.reading.progress).at_least(_PROBABLY)
    wrong = torch.from_numpy(np.isin(positions, read[suspects.positions])).to(group.device)
    # processes may differ in a last digit: all take what the first one found
    found: Positions = positions[group.gather(wrong[None].to(torch.uint8))[0].cpu().numpy().astype(bool)]
    log.info(
        "labels: %s of %s training images are left out, as their labels are probably wrong (dmuh review lists them; "
        "--set wrong_labels=keep keeps them)",
        f"{len(found):,}",
        f"{len(positions):,}",
    )
    return found


@torch.inference_mode()
def _features(context: TrainingContext, positions: Positions) -> tuple[NDArray[np.float32], Positions]:
    """Return the features float32 (n, n_features) of length 1 of those images that can be read, and which these are."""
    network = fresh_network(context.config, context.data, context.group.device)
    batches = [positions[first : first + 512] for first in range(0, len(positions), 512)]
    with training_inputs(context, network) as inputs:
        found = [(network.features(batch.activations), batch.positions) for batch in inputs.batches(batches)]
    rows = torch.cat([features for features, _ in found]).float().cpu().numpy()
    return unit_vectors(rows), np.concatenate([read for _, read in found])
