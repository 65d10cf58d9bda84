"""Tables of results: MAP by row and code length, with what the paper reports, as Markdown, LaTeX, CSV and HTML."""

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

from dmuh.errors import FormatError, RunError
from dmuh.files.documents import file_digest, read_document

Row = dict[str, str]  # a line of results.csv
_COLUMNS = ("bits", "seed")  # axes that are no rows
_REPORTED_ON = {"cifar10": "CIFAR-10", "clothing1m": "Clothing1M", "coco": "MS-COCO", "nuswide": "NUS-WIDE"}
_LATEX = str.maketrans(
    {"±": r"$\pm$", "–": "--", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: rf"\{sign}" for sign in "_%&#${}"}
)


@dataclass(frozen=True)
class SeedMean:
    """The mean over `n` seeds and their standard deviation, None for one seed."""

    mean: float
    deviation: float | None
    n: int

    @property
    def text(self) -> str:
        """The mean as it stands in a table."""
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f" ± {self.deviation:.3f}")

    @property
    def interval(self) -> tuple[int, int]:
        """The lowest and the highest value within a standard deviation, as it is shown: in thousandths."""
        middle, around = round(1000 * self.mean), round(1000 * (self.deviation or 0.0))
        return middle - around, middle + around


@dataclass(frozen=True)
class ResultTable:
    """A table: rows by name, code lengths, our means and the paper's; what failed or is not done has none."""

    name: str
    title: str
    heading: str  # what the rows are
    dataset: str
    bits: list[int]
    rows: list[str]
    ours: dict[tuple[str, int], SeedMean]
    published: dict[tuple[str, int], float]
    published_name: str

    @property
    def reported_on(self) -> str:
        """The data set that the paper's figures are of, where it is another than ours, else nothing."""
        name = self.published_name
        return "" if not self.published or name == self.dataset else _REPORTED_ON.get(name, name)

    def ranked(self, bits: int) -> list[str]:
        """Return the rows that have a mean at this code length, the highest first."""
        found = [row for row in self.rows if (row, bits) in self.ours]
        return sorted(found, key=lambda row: -self.ours[row, bits].mean)

    def leaders(self, bits: int) -> list[str]:
        """Return the row with the highest mean and all that are within noise of it, the highest first.

        Two rows are within noise of one another when their intervals, mean ± standard deviation over seeds, overlap.
        None leads where the highest mean is of one seed: nobody knows its noise.
        """
        ranked = self.ranked(bits)
        if not ranked or self.ours[ranked[0], bits].deviation is None:
            return []
        lowest, _ = self.ours[ranked[0], bits].interval
        return [row for row in ranked if self.ours[row, bits].interval[1] >= lowest]

    def bold(self, bits: int) -> set[str]:
        """Return the rows whose mean is set in bold: those that lead, unless all of them do."""
        leaders = self.leaders(bits)
        return set() if len(leaders) == len(self.ranked(bits)) else set(leaders)


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
        inside = [row for row in rows if about["name"] in row["tables"].split(";")]
        made += [
            _table(about, dataset, [row for row in inside if row["dataset"] == dataset])
            for dataset in dict.fromkeys(row["dataset"] for row in inside)
        ]
    return made


def _table(about: dict[str, Any], dataset: str, rows: Sequence[Row]) -> ResultTable:
    keys = [key for key in about["axes"] if key not in (*_COLUMNS, "dataset")] or ["method"]
    found: dict[tuple[str, int], list[float]] = {}
    measure = about.get("measure", "map")  # benches of earlier versions have no other
    wanted = itertools.product(*(about["axes"].get(key, []) for key in keys))
    names = {", ".join(row_name(str(value)) for value in values): False for values in wanted}  # in the file's order
    for row in rows:
        name = ", ".join(row_name(row[key]) for key in keys)
        names[name] = True
        if row.get(measure):
            found.setdefault((name, int(row["bits"])), []).append(float(row[measure]))
    bits = sorted({int(row["bits"]) for row in rows})
    published = _published(about["name"], about["published"])
    ours = {
        key: SeedMean(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))
        for key, values in found.items()
    }
    beside = {key: value for key, value in published.items() if names.get(key[0]) and key[1] in bits}
    return ResultTable(
        about["name"],
        about["title"],
        ", ".join(keys),
        dataset,
        bits,
        [name for name, there in names.items() if there],
        ours,
        beside,
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
    reported = dict(tomllib.loads(text).get(table, {}).get(dataset, {}))
    bits = reported.pop("bits", [])
    return {(row, b): value for row, values in reported.items() for b, value in zip(bits, values, strict=True)}


Cells = tuple[list[str], list[list[str]]]  # the header and the lines of a table


def _our_cells(table: ResultTable, bold: str) -> Cells:
    """Return our means; `bold` is how those that lead are set, with {} for the text."""
    header = [table.heading, *(f"{b} bits" for b in table.bits)]
    bold_rows = {b: table.bold(b) for b in table.bits}
    lines = []
    for row in table.rows:
        line = [row]
        for b in table.bits:
            ours = table.ours.get((row, b))
            text = "–" if ours is None else ours.text
            line.append(bold.format(text) if row in bold_rows[b] else text)
        lines.append(line)
    return header, lines


def _published_cells(table: ResultTable) -> Cells:
    """Return what the paper reports, for all rows of the table; on another data set than ours, the header says so."""
    reported, source = table.published, f"paper on {table.reported_on}" if table.reported_on else "paper"
    lines = [
        [row, *(f"{reported[row, b]:.3f}" if (row, b) in reported else "–" for b in table.bits)] for row in table.rows
    ]
    return [table.heading, *(f"{source}, {b}" for b in table.bits)], lines


def _cells(table: ResultTable, bold: str) -> Cells:
    """Return our means and, where the paper reports some, the paper's beside them."""
    header, lines = _our_cells(table, bold)
    if not table.published:
        return header, lines
    more, others = _published_cells(table)
    return header + more[1:], [ours + theirs[1:] for ours, theirs in zip(lines, others, strict=True)]


def markdown(table: ResultTable) -> str:
    """Return the table in Markdown."""
    return markdown_rows(*_cells(table, "**{}**"))


def markdown_rows(header: list[str], lines: list[list[str]]) -> str:
    """Return a table of cells in Markdown."""
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
    """Return the table as lines of row, bits, mean, deviation, seeds, what the paper reports and on which data set."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", table.heading, "bits", "map", "std", "seeds", "published", "published_on"])
    for row in table.rows:
        for b in table.bits:
            ours = table.ours.get((row, b))
            values = ("", "", 0) if ours is None else (f"{ours.mean:.6f}", _or_empty(ours.deviation), ours.n)
            reported = table.published.get((row, b))
            beside = ("", "") if reported is None else (reported, table.published_name)
            writer.writerow([table.dataset, row, b, *values, *beside])
    return text.getvalue()


def _or_empty(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def html_table(table: ResultTable) -> str:
    """Return our means in HTML, to scroll sideways where the table is wide; what the paper reports is folded below."""
    ours = html_rows(*_our_cells(table, "\0{}"))
    if not table.published:
        return ours
    header, lines = _published_cells(table)
    reported = [line for line in lines if any(text != "–" for text in line[1:])]
    named = f"{table.reported_on}, another data set" if table.reported_on else _REPORTED_ON[table.published_name]
    title = f"What the paper reports on {html.escape(named)}, with its own network"
    return f'{ours}<details class="paper"><summary>{title}</summary>{html_rows(header, reported)}</details>'


def html_rows(header: list[str], lines: list[list[str]]) -> str:
    """Return a table of cells; those that begin with a zero character, which no text has, are bold."""

    def cell(text: str, kind: str = "td") -> str:
        inner = html.escape(text.removeprefix("\0"))
        return f"<{kind}><b>{inner}</b></{kind}>" if text.startswith("\0") else f"<{kind}>{inner}</{kind}>"

    head = "".join(cell(text, "th") for text in header)
    body = "".join(f"<tr>{cell(first, 'th')}{''.join(map(cell, rest))}</tr>\n" for first, *rest in lines)
    return f'<div class="rows"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
