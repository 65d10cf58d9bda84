"""What bits of sureness give: MAP and precision by ranking and by what is stored, as a table and a figure."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from dmuh.report import figures
from dmuh.report.benches import Part
from dmuh.report.markup import Drawn
from dmuh.report.tables import Row, html_rows, markdown_rows

RANKINGS = {  # columns of results.csv, how often each bit is stored, and what they are called
    "map": (1, "Hamming distance"),
    "map_sure_0": (1, "soft query"),
    "map_sure_1": (2, "soft, 1 sure bit per bit"),
    "map_sure_2": (3, "soft, 2 sure bits per bit"),
}
_SEEN = {"precision_at_1": "precision@1, expected", "precision_at_1_seen": "as shown",
         "precision_at_1_seen_sure_1": "as shown, soft, 1 sure bit"}  # fmt: skip


def draw_sureness(part: Part) -> Iterator[Drawn]:
    """Draw MAP by what is stored for the first method of the table of methods, beside a table of all of them."""
    rows = [row for row in part.results_of("methods") if row.get("map_sure_1")]
    if not rows:
        return
    first = rows[0]["method"]
    lines = storage([row for row in rows if row["method"] == first])
    known = {row["method"] for row in rows}
    rows += [row for row in part.results_of("order") if row["method"] not in known]
    drawing = figures.map_by_storage(lines, f"{first}: what a sure bit is worth")
    text = (
        "The same codes, ranked in four ways. Soft ranking weighs the query's bits by how sure they are, and those of "
        "the database where it keeps one or two bits more for each, which say how sure it is. Means over seeds; the "
        "table has every method."
    )
    cells = _cells(rows)
    yield Drawn("storage", "MAP by what is stored", text, drawing, html_rows(*cells), markdown_rows(*cells))


def storage(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return by ranking the mean MAP by the bits that are stored per image."""
    lines: dict[str, dict[int, float]] = {}
    for column, (times, name) in RANKINGS.items():
        points = {bits: _mean(of_bits, column) for bits, of_bits in _by_bits(rows).items()}
        lines[name] = {times * bits: value for bits, value in points.items() if value is not None}
    return lines


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table of every method and length."""
    head = ["method", "bits", *(name for _, name in RANKINGS.values()), *_SEEN.values()]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        for bits, of_bits in _by_bits([row for row in rows if row["method"] == method]).items():
            means = (_mean(of_bits, column) for column in (*RANKINGS, *_SEEN))
            lines.append([method, str(bits), *("–" if mean is None else f"{mean:.3f}" for mean in means)])
    return head, lines


def _by_bits(rows: Sequence[Row]) -> Mapping[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["bits"])):
        found.setdefault(int(row["bits"]), []).append(row)
    return found


def _mean(rows: Sequence[Row], column: str) -> float | None:
    values = [float(row[column]) for row in rows if row.get(column)]
    return fmean(values) if values else None
