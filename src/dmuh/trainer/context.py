"""What all parts of one training share."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmuh.config import Config, TrainingSettings
from dmuh.datasets import Dataset
from dmuh.images import Reading
from dmuh.protocols import Split, noisy_labels
from dmuh.runs import Run
from dmuh.trainer.bar import Report
from dmuh.trainer.distributed import Group


@dataclass(frozen=True, eq=False)
class TrainingContext:
    """One training: its settings, where it is written, what it learns from, and who works on it.

    config    all settings
    run       the run folder
    data      images and labels
    split     which of the images train, watch the training (validation), query and are searched
    group     the processes that train together
    reading   how images are read
    report    is told of each step
    absence   the probability (images,) with which a training image takes no part in an epoch, as its labels are
              doubtful; None: all take part in all
    """

    config: Config
    run: Run
    data: Dataset
    split: Split
    group: Group
    reading: Reading
    report: Report
    absence: NDArray[np.float32] | None = None

    @property
    def settings(self) -> TrainingSettings:
        """The settings of the training loop."""
        return self.config.training

    def with_label_noise(self) -> "TrainingContext":
        """Return the context with wrong labels for as many training images as the settings want."""
        fraction = self.config.protocol.label_noise
        if not fraction:
            return self
        labels = noisy_labels(self.data.labels, self.split.train, fraction, self.settings.seed)
        return replace(self, data=replace(self.data, labels=labels))
