"""Labels that are probably wrong, for a person to go through: whose images, as which list, decided how.

sources.py      the images, labels and vectors of a run, an index, a folder, a data set or a catalogue
lists.py        suspects (see `dmuh.wrong_labels`) as a CSV list, and the decisions that come back
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

__all__ = [
    "Labelled",
    "Suspect",
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
