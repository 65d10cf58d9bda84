"""Run folders: what a training leaves on disk, and how all that a run was made with is opened again."""

from pathlib import Path
from typing import NamedTuple

from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.protocols import Split
from dmuh.runs.folder import Run

__all__ = ["OpenedRun", "Run", "open_run"]


class OpenedRun(NamedTuple):
    """A run folder, its settings, the data set that it was begun with, and the split of its images."""

    run: Run
    config: Config
    dataset: Dataset
    split: Split


def open_run(path: str | Path, data: str | Path | Dataset | None = None) -> OpenedRun:
    """Open the run in the folder `path`, whether it is finished or not.

    `data` is where its data are by now if they moved, or the data set itself where it was read already. Another data
    set than the one that the run was begun with is refused.
    """
    from dmuh.methods import configure  # needs torch, which the run folder itself does without

    run = Run(Path(path))
    moved = {} if data is None or isinstance(data, Dataset) else {"data": str(data)}
    config = configure(run.settings(), moved)
    dataset = data if isinstance(data, Dataset) else run.load_dataset(data)
    return OpenedRun(run, config, dataset, run.load_split(dataset))
