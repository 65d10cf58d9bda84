"""Labels that are probably wrong are corrected before anything learns from them.

Every training and validation image is judged by fits to others (`dmuh.wrong_labels`), on the features of the frozen
backbone. Where its labels are wrong with a probability of a half or more, it trains with those that are probably right.
What was corrected is kept in the run folder: a run that is resumed goes on with the same labels.
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
_PROBABLY = 0.5


@dataclass(frozen=True, eq=False)
class Corrections:
    """Images whose labels were corrected.

    positions  int64 (n,), ascending: where they stand in the data set
    labels     uint8 (n, classes): what they train with
    """

    positions: Positions
    labels: Labels

    def applied(self, context: TrainingContext) -> TrainingContext:
        """Return the context with these labels."""
        if not len(self.positions):
            return context
        labels = context.data.labels.copy()
        labels[self.positions] = self.labels
        return replace(context, data=replace(context.data, labels=labels))


def corrected(context: TrainingContext, *, goes_on: bool) -> tuple[TrainingContext, Corrections | None]:
    """Return the context with the labels that train, and what was corrected, where the settings ask for it.

    A run that goes on takes what was corrected when it began.
    """
    if context.settings.wrong_labels != "correct" or not context.data.classes:
        return context, None
    kept = context.run.load_corrections() if goes_on else None
    if kept is None and goes_on and not context.run.begun_in_vain:
        return context, None  # begun by a dmuh that corrected none
    found = _judged(context) if kept is None else Corrections(*kept)
    return found.applied(context), found


def _judged(context: TrainingContext) -> Corrections:
    """Return the images whose labels are probably wrong, with those that are probably right."""
    data, group = context.data, context.group
    positions = np.union1d(context.split.train, context.split.validation)
    labelled = positions[data.labels[positions].any(axis=1)]
    if len(labelled) < _FEWEST or np.count_nonzero(data.labels[labelled].any(axis=0)) < 2:
        return Corrections(positions[:0], data.labels[:0])
    vectors, read = _features(context, labelled)
    suspects = find_suspects(vectors, data.labels[read], count=context.reading.progress).at_least(_PROBABLY)
    labels = data.labels[positions]
    labels[np.searchsorted(positions, read[suspects.positions])] = suspects.suggested
    # processes may differ in a last digit: all take what the first one found
    labels = group.gather(torch.from_numpy(labels).to(group.device)[None])[0].cpu().numpy()
    changed = (labels != data.labels[positions]).any(axis=1)
    log.info(
        "labels: %s of %s training images have labels that are probably wrong, and train with those that are probably "
        "right (dmuh review lists them; --set wrong_labels=keep keeps them)",
        f"{np.count_nonzero(changed):,}",
        f"{len(positions):,}",
    )
    return Corrections(positions[changed], labels[changed])


@torch.inference_mode()
def _features(context: TrainingContext, positions: Positions) -> tuple[NDArray[np.float32], Positions]:
    """Return the features float32 (n, n_features) of length 1 of those images that can be read, and which these are."""
    network = fresh_network(context.config, context.data, context.group.device)
    batches = [positions[first : first + 512] for first in range(0, len(positions), 512)]
    with training_inputs(context, network) as inputs:
        found = [
            (network.features(batch.activations).cpu().numpy(), batch.positions) for batch in inputs.batches(batches)
        ]
    rows, read = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return unit_vectors(rows), read
