"""Which settings a bench chose on held-out training images before it ran its tables."""

import csv
import json
from pathlib import Path

from dmuh.report.tables import html_rows, markdown_rows

_FILE = Path("tuning") / "tuning.csv"  # in the folder of a bench

TEXT = (
    "Chosen by the MAP of training images that were held out, before any table was run. The first try of every method "
    "has its settings as they were; no test image took part."
)


def chosen_tables(folder: Path) -> tuple[str, str] | None:
    """Return what was chosen in the bench of this folder as HTML and as Markdown; None where nothing was tuned."""
    if not (folder / _FILE).is_file():
        return None
    with (folder / _FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    header = ["method", "tries", "settings chosen", "MAP, held out", "as they were"]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        tries = [row for row in rows if row["method"] == method]
        best = next(row for row in tries if row["chosen"])
        changed = json.loads(best["settings"])
        settings = ", ".join(f"{key} {value}" for key, value in changed.items()) or "as they were"
        lines.append([method, str(len(tries)), settings, _shown(best["map"]), _shown(tries[0]["map"])])
    return html_rows(header, lines), markdown_rows(header, lines)


def _shown(score: str) -> str:
    return f"{float(score):.3f}" if score else "–"
