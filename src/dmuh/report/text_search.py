"""What texts find among images, and images among texts: a table of every method, and a figure at one length."""

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from dmuh.report import figures
from dmuh.report.benches import Part
from dmuh.report.markup import Drawn
from dmuh.report.summary import shown_bits
from dmuh.report.tables import Row, html_rows, markdown_rows

WAYS = {"text_to_image": ("texts", "texts among images"), "image_to_text": ("images", "images among texts")}
_COLUMNS = {  # of results.csv, for each way, and what they are called
    "map_{way}": "MAP, Hamming distance",
    "map_{way}_sure_0": "soft query",
    "map_{way}_sure_1": "soft, 1 sure bit per bit",
    "map_at_50_{way}": "MAP@50",
    "recall_at_1_{way}": "R@1",
    "recall_at_5_{way}": "R@5",
    "recall_at_10_{way}": "R@10",
}


def draw_text_search(part: Part) -> Iterator[Drawn]:
    """Draw for each way the MAP of every method at one length, beside a table of all lengths and figures."""
    for way, (queries, words) in WAYS.items():
        rows = [row for row in part.rows if row.get(f"map_{way}")]
        if not rows:
            continue
        bits = shown_bits(sorted({int(row["bits"]) for row in rows}))
        drawing = figures.map_by_row(_means(rows, f"map_{way}", bits), f"MAP of {words} at {bits} bits")
        cells = _cells(rows, way)
        text = (
            f"MAP of {words} by shared labels, by Hamming distance and by soft ranking, where the database keeps one "
            "more bit per bit that says how sure it is. R@k is how often the pair itself, an image and its own text, "
            "is among the first k of the query images and their texts, by soft ranking. Means over seeds."
        )
        title = words.capitalize()
        yield Drawn(f"found-by-{queries}", title, text, drawing, html_rows(*cells), markdown_rows(*cells))


def _means(rows: Sequence[Row], column: str, bits: int) -> dict[str, tuple[float, float | None]]:
    """Return the mean of each method at one length and its deviation over seeds, the highest first."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if int(row["bits"]) == bits:
            found.setdefault(row["method"], []).append(float(row[column]))
    means = {name: (fmean(values), stdev(values) if len(values) > 1 else None) for name, values in found.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1][0]))


def _cells(rows: Sequence[Row], way: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table of every method and length."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        for bits in sorted({int(row["bits"]) for row in own}):
            of_bits = [row for row in own if int(row["bits"]) == bits]
            means = (fmean(float(row[column.format(way=way)]) for row in of_bits) for column in _COLUMNS)
            lines.append([method, str(bits), *(f"{mean:.3f}" for mean in means)])
    return ["method", "bits", *_COLUMNS.values()], lines
