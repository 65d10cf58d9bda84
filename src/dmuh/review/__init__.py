"""Which labels are probably wrong, which ones would be right, and how sure that is. No torch but for new features.

kernel.py       KernelFeatures: vectors as features in which a linear fit tells curved classes apart
noise.py        OneLabel, SeveralLabels: how often labels are wrong, and how likely a given one is
logistic.py     Folds: what fits to other images say of each
suspects.py     find_suspects: vectors and labels in, suspects out
sources.py      the images, labels and vectors of a run, an index, a folder, a data set or a catalogue
lists.py        suspects as a CSV list that a person goes through, and the decisions that come back
"""

from dmuh.review.lists import (
    Suspect,
    keep_decisions,
    kept_decisions,
    read_decisions,
    suspects_of,
    write_labels,
    write_suspects,
)
from dmuh.review.sources import Labelled, of_catalogue, of_dataset, of_folder, of_index, of_run
from dmuh.review.suspects import Suspects, find_suspects

__all__ = [
    "Labelled",
    "Suspect",
    "Suspects",
    "find_suspects",
    "keep_decisions",
    "kept_decisions",
    "of_catalogue",
    "of_dataset",
    "of_folder",
    "of_index",
    "of_run",
    "read_decisions",
    "suspects_of",
    "write_labels",
    "write_suspects",
]
