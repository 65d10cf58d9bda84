"""The report of benches: tables and figures as files, and one page with all of them.

What is drawn follows from the names of the tables and from what the runs left behind:

    methods      MAP of every row at one code length; precision over recall of the best rows; MAP by what is stored
    ablations    precision of the first 5,000
    curves       loss and MAP of training images over the epochs
    any run of a method for images and texts: what each finds among the other
    any run with a study of its uncertainty: what that predicts, two bits over the epochs, the least and most
    uncertain images
    a bench that was tuned: the settings that were chosen
"""

import html
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from dmuh.files import write_text, written_whole
from dmuh.report import choices, figures, tables
from dmuh.report.benches import Part, bench_names, read_parts
from dmuh.report.choices import chosen_tables
from dmuh.report.figures import Drawing
from dmuh.report.markup import Drawn, Section, anchor_of, figure, page, refuse_foreign_page, switched
from dmuh.report.studies import draw_studies
from dmuh.report.summary import shown_bits, summary
from dmuh.report.sureness import draw_sureness
from dmuh.report.tables import ResultTable, SeedMean
from dmuh.report.text_search import draw_text_search

_CURVES = 7  # lines of a figure at most
_FIRST = 5000  # images of the precision@k figure

_HOW_TO_READ = (
    "MAP is over the whole ranking unless a table says otherwise, in the exact mean over all orders of images at equal "
    "distance. Means and standard deviations are over seeds; each seed draws its own split. Two rows are within noise "
    "of one another when their intervals, mean ± standard deviation, overlap. Bold is the highest mean of a code "
    "length, together with all that are within noise of it; where that is every row, or where there is one seed and so "
    "no noise to compare with, nothing is bold."
)


def write_report(folders: Sequence[Path], out: Path, title: str = "") -> None:
    """Write tables, figures and the page of one or several bench folders to the folder `out`.

    Files: index.html; tables/NAME.md, .tex and .csv; figures/NAME.svg, NAME-dark.svg and NAME.png; results-BENCH.csv.
    """
    refuse_foreign_page(out / "index.html")
    parts = read_parts(folders)
    for folder, name in bench_names(folders).items():
        write_text(out / f"results-{name}.csv", (folder / "results.csv").read_text(encoding="utf-8"))
    title = title or "Results"
    sections = {part.name: [*_tables(part, out), *_figures(part, out)] for part in parts}
    write_text(out / "index.html", page(title, [_header(title, parts), switched(sections)]))


def _header(title: str, parts: Sequence[Part]) -> str:
    lines = []
    for name, sentences in summary(parts).items():
        told = "".join(
            f"<dd>{f'<b>{html.escape(part)}</b>: ' if part else ''}{html.escape(sentence)}</dd>"
            for part, sentence in sentences.items()
        )
        lines.append(f"<div><dt>{name}</dt>{told}</div>\n")
    return (
        f'<header><h1>{html.escape(title)}</h1>\n<dl class="summary">\n{"".join(lines)}</dl>\n'
        f"<details><summary>How to read the tables</summary><p>{_HOW_TO_READ}</p></details></header>\n"
    )


def _tables(part: Part, out: Path) -> Iterator[Section]:
    """Write the tables of a part as files, and return them for the page."""
    for table in part.tables:
        stem = out / "tables" / f"{part.name}-{table.name}"
        for suffix, text in ((".md", tables.markdown(table)), (".tex", tables.latex(table)),
                             (".csv", tables.tidy_csv(table))):  # fmt: skip
            write_text(stem.with_name(stem.name + suffix), text)
        title = table.title[:1].upper() + table.title[1:]
        about = f"{_about(table)}{_failed(part.errors_of(table.name))}"
        yield Section(title, about, tables.html_table(table), anchor_of(part.name, table.name))
    chosen = chosen_tables(part.folder)
    if chosen is not None:
        content, text = chosen
        write_text(out / "tables" / f"{part.name}-tuning.md", text)
        yield Section("Settings that were chosen", choices.TEXT, content, anchor_of(part.name, "tuning"), folded=True)


def _about(table: ResultTable) -> str:
    """Say what the means of a table are taken over, and what bold means in it."""
    text = f"{_over_seeds(table.ours.values())}"
    if any(table.bold(bits) for bits in table.bits):
        return f"{text}; bold is the best of each length with all that are within noise of it."
    if len(table.rows) > 1 and any(table.leaders(bits) for bits in table.bits):
        return f"{text}; all rows are within noise of one another."
    return f"{text}{': noise is not known, so nothing is bold' if len(table.rows) > 1 else ''}."


def _failed(errors: Sequence[str]) -> str:
    """Say how many runs of a table have no result, and why the first has none."""
    return f" {len(errors)} of its runs failed, the first because {errors[0]}." if errors else ""


def _over_seeds(means: Collection[SeedMean]) -> str:
    seeds = sorted({mean.n for mean in means})
    if seeds in ([], [1]):
        return "One seed"
    return f"Means and standard deviations over {' or '.join(map(str, seeds))} seeds"


def _figures(part: Part, out: Path) -> Iterator[Section]:
    """Write the figures of a part as files, and return them for the page; those of the paper are folded."""
    sheet = out / "figures" / f"{part.name}-images.png"
    for drawn in (*_compared(part), *draw_sureness(part), *draw_text_search(part), *draw_studies(part, sheet)):
        _save(drawn.drawing, out / "figures" / f"{part.name}-{drawn.name}")
        if drawn.table:
            write_text(out / "tables" / f"{part.name}-{drawn.name}.md", drawn.table)
        content, anchor = figure(drawn.drawing) + drawn.beside, anchor_of(part.name, "figure", drawn.name)
        yield Section(drawn.title, drawn.text, content, anchor, drawn.of_the_paper)


def _compared(part: Part) -> Iterator[Drawn]:
    """Draw the figures that set runs beside one another."""
    by_name = {table.name: table for table in part.tables}
    if "methods" in by_name:
        ablations = by_name["ablations"].rows[1:] if "ablations" in by_name else []
        yield from _methods_compared(part, by_name["methods"], ablations)
    if "ablations" in by_name:
        table = by_name["ablations"]
        bits = shown_bits(table.bits)
        curves = _curves(part, table, bits, table.rows[:_CURVES])
        if curves:
            text = f"Precision of the first k, up to {_FIRST:,}, at {bits} bits, first seed."
            drawing = figures.precision_at_k(curves, _FIRST)
            yield Drawn("precision-at-k", "Precision of the ablations", text, drawing, of_the_paper=True)
    rows = part.results_of("curves")
    if rows:
        runs = {f"{row['method']}, {row['bits']} bits": row for row in rows[:_CURVES]}
        drawing = figures.training_compared(
            {name: part.run(row).metrics() for name, row in runs.items()},
            {name: float(row["map"]) for name, row in runs.items()},
        )
        text = "Loss and MAP of the training images over the epochs."
        yield Drawn("curves", "How they learn", text, drawing, of_the_paper=True)


def _methods_compared(part: Part, table: ResultTable, ablations: Sequence[str]) -> Iterator[Drawn]:
    """Draw the MAP of every row at one code length, and precision over recall of some that are no ablations."""
    bits = shown_bits(table.bits)
    ranked = table.ranked(bits)
    if not ranked:
        return
    means = {row: table.ours[row, bits] for row in ranked}
    if len(means) > 1:
        drawing = figures.map_by_row({row: (m.mean, m.deviation) for row, m in means.items()}, f"MAP at {bits} bits")
        yield Drawn("map", f"All rows at {bits} bits", f"{_over_seeds(means.values())}.", drawing)
    wanted = _spread([row for row in ranked if row not in ablations], table.rows[0])
    curves = _curves(part, table, bits, wanted)
    text = f"Precision over recall at {bits} bits, first seed: {len(curves)} rows from the best to the last."
    drawing = figures.precision_recall(curves)
    yield Drawn("precision-recall", "Precision and recall", text, drawing, of_the_paper=True)


def _spread(ranked: Sequence[str], first: str) -> list[str]:
    """Return the first row of a table and others, spread over the ranking: neighbours would lie as one line."""
    others = [row for row in ranked if row != first]
    step = (len(others) - 1) / (_CURVES - 2)
    chosen = {first, *(others[round(place * step)] for place in range(_CURVES - 1) if others)}
    return [row for row in ranked if row in chosen]


def _curves(part: Part, table: ResultTable, bits: int, wanted: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Return the precision–recall curve of the first seed of each of these rows of a table."""
    keys = table.heading.split(", ")
    found: dict[str, dict[str, list[float]]] = {}
    for row in part.results_of(table.name):
        name = ", ".join(tables.row_name(row[key]) for key in keys)
        if int(row["bits"]) == bits and name in wanted and name not in found:
            found[name] = part.run(row).evaluation()["precision_recall"]
    return {name: found[name] for name in wanted if name in found}


def _save(drawing: Drawing, stem: Path) -> None:
    write_text(stem.with_name(stem.name + ".svg"), drawing.light)
    write_text(stem.with_name(stem.name + "-dark.svg"), drawing.dark)
    with written_whole(stem.with_name(stem.name + ".png")) as temporary:
        temporary.write_bytes(drawing.png)
