"""Tables of results: MAP by row and code length, with the paper's figures beside, as Markdown, LaTeX, CSV and HTML."""

import csv
import html
import io
import itertools
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dmuh.documents import file_digest, read_document
from dmuh.errors import FormatError, RunError

Row = dict[str, str]  # a line of results.csv
_COLUMNS = ("bits", "seed")  # axes that are no rows
_LATEX = str.maketrans(
    {"±": r"$\pm$", "–": "--", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: rf"\{sign}" for sign in "_%&#${}"}
)


@dataclass(frozen=True)
class Figure:
    """The mean over seeds, their standard deviation (None for one seed), how many, and what the paper reports."""

    mean: float
    deviation: float | None
    n: int

    @property
    def text(self) -> str:
        """The figure as it stands in a table."""
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f" ± {self.deviation:.3f}")


@dataclass(frozen=True)
class ResultTable:
    """A table: rows by name, code lengths, our figures and the paper's; what failed or is not done has none."""

    name: str
    title: str
    heading: str  # what the rows are
    dataset: str
    bits: list[int]
    rows: list[str]
    ours: dict[tuple[str, int], Figure]
    published: dict[tuple[str, int], float]
    published_name: str

    def best(self, bits: int) -> float | None:
        """Return the highest mean of a code length, as it is shown."""
        found = [round(self.ours[row, bits].mean, 3) for row in self.rows if (row, bits) in self.ours]
        return max(found, default=None)

    def is_best(self, row: str, bits: int) -> bool:
        """Say whether a figure is to be set in bold."""
        own = self.ours.get((row, bits))
        return own is not None and len(self.rows) > 1 and round(own.mean, 3) == self.best(bits)


def read_results(folder: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return the lines of a bench folder's results, and its tables."""
    results, tables = folder / "results.csv", folder / "tables.json"
    if not results.is_file() or not tables.is_file():
        raise RunError(f"{folder} holds no results: expected a folder made by dmuh bench")
    about = read_document(tables, "dmuh tables")
    if file_digest(results) != about["results"]:
        raise FormatError(f"{results} was altered since dmuh bench wrote it: run the same dmuh bench again")
    csv.field_size_limit(2**24)
    with results.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file)), about["tables"]


def make_tables(rows: Sequence[Row], tables: Sequence[dict[str, Any]]) -> list[ResultTable]:
    """Return a table for every data set of every table of the bench."""
    made = []
    for about in tables:
        own = [row for row in rows if about["name"] in row["tables"].split(";")]
        made += [
            _table(about, dataset, [row for row in own if row["dataset"] == dataset])
            for dataset in dict.fromkeys(row["dataset"] for row in own)
        ]
    return made


def _table(about: dict[str, Any], dataset: str, rows: Sequence[Row]) -> ResultTable:
    keys = [key for key in about["axes"] if key not in (*_COLUMNS, "dataset")] or ["method"]
    found: dict[tuple[str, int], list[float]] = {}
    wanted = itertools.product(*(about["axes"].get(key, []) for key in keys))
    names = {", ".join(row_name(str(value)) for value in values): False for values in wanted}  # in the file's order
    for row in rows:
        name = ", ".join(row_name(row[key]) for key in keys)
        names[name] = True
        if row["map"]:
            found.setdefault((name, int(row["bits"])), []).append(float(row["map"]))
    bits = sorted({int(row["bits"]) for row in rows})
    published = _published(about["name"], about["published"])
    ours = {
        key: Figure(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))
        for key, values in found.items()
    }
    kept = {key: value for key, value in published.items() if names.get(key[0]) and key[1] in bits}
    return ResultTable(
        about["name"],
        about["title"],
        ", ".join(keys),
        dataset,
        bits,
        [name for name, there in names.items() if there],
        ours,
        kept,
        about["published"],
    )


def row_name(value: str) -> str:
    """Return a value as a row's name: numbers as short as they can be."""
    try:
        return f"{float(value):.12g}"
    except ValueError:
        return value


def _published(table: str, dataset: str) -> dict[tuple[str, int], float]:
    text = resources.files("dmuh.report").joinpath("published.toml").read_text(encoding="utf-8")
    own = dict(tomllib.loads(text).get(table, {}).get(dataset, {}))
    bits = own.pop("bits", [])
    return {(row, b): value for row, values in own.items() for b, value in zip(bits, values, strict=True)}


def _cells(table: ResultTable, bold: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines; `bold` is how the best is set, with {} for the figure."""
    header = [table.heading, *(f"{b} bits" for b in table.bits)]
    if table.published:
        header += [f"paper, {b}" for b in table.bits]
    lines = []
    for row in table.rows:
        line = [row]
        for b in table.bits:
            own = table.ours.get((row, b))
            text = "–" if own is None else own.text
            line.append(bold.format(text) if table.is_best(row, b) else text)
        if table.published:
            line += [f"{table.published[row, b]:.3f}" if (row, b) in table.published else "–" for b in table.bits]
        lines.append(line)
    return header, lines


def markdown(table: ResultTable) -> str:
    """Return the table in Markdown."""
    header, lines = _cells(table, "**{}**")
    rows = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def latex(table: ResultTable) -> str:
    """Return the table in LaTeX, for the package booktabs."""
    header, lines = _cells(table, "\0{}")

    def escape(text: str) -> str:
        plain = text.removeprefix("\0").translate(_LATEX)
        return rf"\textbf{{{plain}}}" if text.startswith("\0") else plain

    body = "".join(f"{' & '.join(map(escape, line))} \\\\\n" for line in lines)
    top = " & ".join(map(escape, header))
    columns = "l" + "c" * (len(header) - 1)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{top} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"


def tidy_csv(table: ResultTable) -> str:
    """Return the table as lines of row, bits, mean, deviation, seeds and the paper's figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", table.heading, "bits", "map", "std", "seeds", "published"])
    for row in table.rows:
        for b in table.bits:
            own = table.ours.get((row, b))
            figures = ("", "", 0) if own is None else (f"{own.mean:.6f}", _or_empty(own.deviation), own.n)
            writer.writerow([table.dataset, row, b, *figures, table.published.get((row, b), "")])
    return text.getvalue()


def _or_empty(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def html_table(table: ResultTable) -> str:
    """Return the table in HTML, to scroll sideways where it is wide."""
    header, lines = _cells(table, "\0{}")  # a mark that no text has

    def cell(text: str, kind: str = "td") -> str:
        inner = html.escape(text.removeprefix("\0"))
        return f"<{kind}><b>{inner}</b></{kind}>" if text.startswith("\0") else f"<{kind}>{inner}</{kind}>"

    head = "".join(cell(text, "th") for text in header)
    body = "".join(f"<tr>{cell(first, 'th')}{''.join(map(cell, rest))}</tr>\n" for first, *rest in lines)
    return f'<div class="rows"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
