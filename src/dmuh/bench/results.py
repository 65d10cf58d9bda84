"""The results of a grid as one tidy table: one line per run."""

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

from dmuh.bench.cells import summary_of
from dmuh.bench.grid import Cell, Grid
from dmuh.encoder.calibration import SURE
from dmuh.files import write_text
from dmuh.files.documents import refuse_foreign, write_document
from dmuh.methods import METHODS
from dmuh.runs import Run
from dmuh.trainer.text_evaluation import TO_IMAGES, TO_TEXTS

RESULTS, TABLES = "results.csv", "tables.json"
_KIND = "dmuh tables"
_SHOWN = ("dataset", "protocol", "backbone", "freeze", "method", "bits", "seed")
_MEASURED = ("map", "map_sure_0", "map_sure_1", "map_sure_2", "precision_at_1", "precision_at_1_seen",
             "precision_at_1_seen_sure_0", "precision_at_1_seen_sure_1", "precision_at_1_seen_sure_2",
             "precision_within_radius", "train_map", "validation_map")  # fmt: skip
_WAYS = (TO_IMAGES, TO_TEXTS)
_OF_TEXTS = tuple(
    name
    for way in _WAYS
    for name in (
        f"map_{way}", *(f"map_{way}_sure_{sure}" for sure in SURE), f"map_at_50_{way}",
        *(f"recall_at_{k}_{way}" for k in (1, 5, 10)),
    )
)  # fmt: skip
MEASURES = (*_MEASURED, *_OF_TEXTS)
_MADE_BY = ("versions", "machine")
_SPENT = ("train_seconds", "peak_memory_mb")


def write_results(grid: Grid, out: Path) -> None:
    """Write `out/results.csv` from the folders of the runs that are done, in the order of the grid, and its tables.

    Columns: the run's folder, its tables, its main settings, whatever else varies in a table, what was measured (by
    Hamming distance, and as sure_N by soft ranking where the database keeps N bits of sureness per bit), the split,
    versions and machine, all settings as JSON, and what it cost. An error stands in place of figures. Methods for
    images and texts add what each finds among the other (by Hamming distance and by soft ranking), and R@k.
    """
    varied = {key: None for table in grid.tables for key in table.axes if key not in _SHOWN}
    has_texts = any(METHODS[cell.config.method].takes_texts for cell in grid.cells)
    measured = MEASURES if has_texts else _MEASURED
    columns = ["run", "tables", *_SHOWN, "preset", *varied, *measured, "error", "split", *_MADE_BY, "config", *_SPENT]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for cell in grid.cells:
        folder = out / "runs" / cell.name
        summary = summary_of(folder)
        if summary is not None:
            writer.writerow({key: value for key, value in _row(cell, folder, summary).items() if key in columns})
    refuse_foreign(out, TABLES, _KIND, [RESULTS])
    digest = hashlib.sha256(text.getvalue().encode()).hexdigest()
    write_document(out / TABLES, _KIND, {"tables": [vars(table) for table in grid.tables], "results": digest})
    write_text(out / RESULTS, text.getvalue())  # second: a folder with tables is known to be ours


def _row(cell: Cell, folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    sections = cell.settings()
    settings = {key: value for section in sections.values() for key, value in section.items()}
    run = Run(folder)
    measured = {key: f"{summary[key]:.6f}" for key in MEASURES if summary.get(key) is not None}
    environment = run.environment()
    versions = {"python": environment["python"], **environment["packages"]}
    return (
        settings
        | measured
        | {key: summary.get(key, "") for key in ("error", *_SPENT)}
        | {
            "run": cell.name,
            "tables": ";".join(cell.tables),
            "preset": cell.preset,
            "split": run.evaluation()["split"] if "map" in summary else "",
            "versions": " ".join(f"{name}={version}" for name, version in versions.items()),
            "machine": f"{environment['platform']}, {environment['cores']} cores",
            "config": json.dumps(sections, sort_keys=True),
        }
    )
