"""The folders of benches as a report reads them: their results by data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dmuh.report.tables import ResultTable, Row, make_tables, read_results
from dmuh.runs import Run


@dataclass(frozen=True)
class Part:
    """What one bench measured on one data set, which is a part of the page.

    folder   of the bench
    name     of the part: the bench's, with the data set's where a bench has several
    rows     its lines of results.csv
    tables   made from them
    """

    folder: Path
    name: str
    rows: list[Row]
    tables: list[ResultTable]

    def results_of(self, table: str) -> list[Row]:
        """Return the lines of a table that have a result."""
        return [row for row in self._lines_of(table) if row["map"]]

    def errors_of(self, table: str) -> list[str]:
        """Return why runs of a table have no result."""
        return [row["error"] for row in self._lines_of(table) if row["error"]]

    def _lines_of(self, table: str) -> list[Row]:
        return [row for row in self.rows if table in row["tables"].split(";")]

    def run(self, row: Row) -> Run:
        """Return the run of a line."""
        return Run(self.folder / "runs" / row["run"])


def read_parts(folders: Sequence[Path]) -> list[Part]:
    """Read the folders of benches, one part for each data set of each."""
    parts = []
    for folder, bench in bench_names(folders).items():
        rows, about = read_results(folder)
        tables = make_tables(rows, about)
        datasets = list(dict.fromkeys(table.dataset for table in tables))
        for dataset in datasets:
            name = bench if len(datasets) == 1 else f"{bench}-{dataset}"
            chosen = [row for row in rows if row["dataset"] == dataset]
            parts.append(Part(folder, name, chosen, [table for table in tables if table.dataset == dataset]))
    return parts


def bench_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what each folder is called: its name, with those of the folders above it where two have the same."""
    names: dict[Path, str] = {}
    for folder in folders:
        path = folder.resolve().parts
        depth = 1
        while "-".join(path[-depth:]) in names.values() and depth < len(path) - 1:
            depth += 1
        names[folder] = "-".join(path[-depth:])
    return names
