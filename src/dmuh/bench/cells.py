"""One run of a grid: trained, measured and summed up in its folder."""

import functools
import gc
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dmuh.bench.grid import Cell
from dmuh.bench.uncertainty import study
from dmuh.config import DataSettings
from dmuh.datasets import Dataset, load_dataset
from dmuh.errors import FormatError, TrainingError
from dmuh.files.documents import read_document, write_document
from dmuh.machine import give_freed_memory_back
from dmuh.runs import Run
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run
from dmuh.trainer.similarities import Similarities
from dmuh.trainer.text_evaluation import TO_IMAGES, TO_TEXTS

SUMMARY = "cell.json"
_KIND = "dmuh cell"
_similarities = Similarities()  # go from one run of this process to the next


def run_cell(cell: Cell, folder: Path, threads: int) -> None:
    """Make a run, or go on with it; its summary is written last, so that what has one is done.

    A training that runs away or collapses is a result too: the summary says so.
    """
    torch.set_num_threads(threads)
    _forget_peak_memory()
    run = Run(folder)
    data = _loaded(cell.config.data)
    summary: dict[str, Any] = {}
    try:
        train(cell.config, folder, dataset=data, resume=True, progress=False)
        measured = evaluate_run(run, data, similarities=_similarities)
        summary |= {
            "map": measured.metrics.map,
            "precision_within_radius": measured.metrics.precision_within_radius,
            "precision_at_1": measured.metrics.precision_at[1],
            "precision_at_1_seen": run.evaluation()["precision_at_1_seen"],
        }
        for soft in measured.soft:
            name = f"sure_{int(soft['sure'])}"
            summary |= {f"map_{name}": soft["map"], f"precision_at_1_seen_{name}": soft["precision_at_1_seen"]}
        for direction, found in measured.texts.items():
            summary |= _of_texts(direction, found)
        if cell.study:
            run.save_study(study(run, data))
    except TrainingError as error:
        summary["error"] = str(error)
    lines = run.metrics()
    if "error" not in summary:
        summary |= {key: lines[-1].get(key) for key in ("train_map", "validation_map")}
    summary["train_seconds"] = round(sum(line["seconds"] for line in lines), 1)
    summary["peak_memory_mb"] = round(_peak_memory())
    write_document(folder / SUMMARY, _KIND, {**summary, "cell": folder.name})


def _of_texts(direction: str, found: dict[str, Any]) -> dict[str, float]:
    """Return what texts find among images, or images among texts, by names of columns."""
    figures = {f"map_{direction}": found["map"], f"map_at_50_{direction}": found["map_at_50"]}
    figures |= {f"map_{direction}_sure_{int(soft['sure'])}": soft["map"] for soft in found["soft"]}
    return figures | {f"recall_at_{k}_{direction}": value for k, value in found["recall"]["soft"].items()}


def score_of(summary: Mapping[str, Any], sure: int | None = None) -> float | None:
    """Return what a run is judged by: the MAP of images, or of both directions between texts and images.

    It is by Hamming distance, or by soft ranking with `sure` bits of sureness per bit.
    """
    ranking = "" if sure is None else f"_sure_{sure}"
    ways = [summary.get(f"map_{way}{ranking}") for way in (TO_IMAGES, TO_TEXTS)]
    known = [way for way in ways if way is not None]
    return sum(known) / len(known) if known else summary.get(f"map{ranking}")


def summary_of(folder: Path) -> dict[str, Any] | None:
    """Return what a cell gave, or None if it is not done."""
    file = folder / SUMMARY
    if not file.is_file():
        return None
    summary = read_document(file, _KIND)
    if summary.pop("cell") != folder.name:
        raise FormatError(f"{file} is of another run than {folder.name}: remove it, and dmuh bench makes it again")
    return summary


@functools.lru_cache(maxsize=2)
def _loaded(settings: DataSettings) -> Dataset:
    """Return a data set, read once for all runs of this process."""
    return load_dataset(settings)


def _forget_peak_memory() -> None:
    """Begin a new measurement of the peak, without what earlier runs of this process left, where the system can."""
    gc.collect()
    give_freed_memory_back()
    file = Path("/proc/self/clear_refs")
    if file.exists():
        file.write_text("5")


def _peak_memory() -> float:
    """Return the most memory that this process had since `_forget_peak_memory`, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)
