"""The report of benches: tables and figures as files, and one page with all of them.

What is drawn follows from the names of the tables and from what the runs left behind:

    methods      MAP of every row at one code length; precision over recall of the best rows
    ablations    precision of the first 5,000
    curves       loss and MAP of training images over the epochs
    any run with a study of its uncertainty: what that predicts, two bits over the epochs, the least and most
    uncertain images
"""

import html
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.datasets import Dataset
from dmuh.errors import DmuhError
from dmuh.files import write_text, written_whole
from dmuh.report import figures, tables
from dmuh.report.figures import Drawing
from dmuh.report.markup import figure, page, refuse_foreign_page, section
from dmuh.report.tables import ResultTable, Row
from dmuh.report.thumbnails import Tile, contact_sheet, data_uri
from dmuh.runs import Run

log = logging.getLogger(__name__)

_SHOWN_BITS = 32  # of the figures that show one code length, or the nearest there is
_CURVES = 7  # lines of a figure at most
_FIRST = 5000  # images of the precision@k figure
_EXTREMES = 12  # images of least and of most uncertainty


@dataclass(frozen=True)
class Bench:
    """One bench folder: its name, its lines, its tables and where its runs are."""

    folder: Path
    name: str
    rows: list[Row]
    about: list[dict[str, Any]]

    def of(self, table: str, dataset: str) -> list[Row]:
        """Return the lines of a table that have a result."""
        own = [row for row in self.rows if table in row["tables"].split(";") and row["dataset"] == dataset]
        return [row for row in own if row["map"]]

    def run(self, row: Row) -> Run:
        """Return the run of a line."""
        return Run(self.folder / "runs" / row["run"])


def write_report(folders: Sequence[Path], out: Path, title: str = "") -> None:
    """Write tables, figures and the page of one or several bench folders to the folder `out`.

    Files: index.html; tables/NAME.md, .tex and .csv; figures/NAME.svg, NAME-dark.svg and NAME.png; results-BENCH.csv.
    """
    refuse_foreign_page(out / "index.html")
    benches = [Bench(folder, name, *tables.read_results(folder)) for folder, name in _named(folders).items()]
    sections = [_header(title or "Results", benches)]
    for bench in benches:
        write_text(out / f"results-{bench.name}.csv", (bench.folder / "results.csv").read_text(encoding="utf-8"))
        made = tables.make_tables(bench.rows, bench.about)
        datasets = list(dict.fromkeys(table.dataset for table in made))
        for dataset in datasets:
            own = [table for table in made if table.dataset == dataset]
            name = bench.name if len(datasets) == 1 else f"{bench.name}-{dataset}"
            sections += _tables(own, name, out)
            sheet = out / "figures" / f"{name}-images.png"
            drawings = [*_compared(bench, own, dataset), *_studied(bench, dataset, sheet)]
            for drawn in drawings:
                _save(drawn.drawing, out / "figures" / f"{name}-{drawn.name}")
            sections += [section(f"{name}: {d.title}", d.text, figure(d.drawing) + d.extra) for d in drawings]
    write_text(out / "index.html", page(title or "Results", sections))


def _named(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what each folder is called: its name, with those above it where two have the same."""
    names: dict[Path, str] = {}
    for folder in folders:
        parts = folder.resolve().parts
        depth = 1
        while "-".join(parts[-depth:]) in names.values() and depth < len(parts) - 1:
            depth += 1
        names[folder] = "-".join(parts[-depth:])
    return names


@dataclass(frozen=True)
class Drawn:
    """A figure of the report, with its title, a sentence about it and what stands beside it."""

    name: str
    title: str
    text: str
    drawing: Drawing
    extra: str = ""


def _header(title: str, benches: Sequence[Bench]) -> str:
    rows = [row for bench in benches for row in bench.rows]
    facts = {
        "runs": f"{len(rows):,}",
        "failed": f"{sum(bool(row['error']) for row in rows):,}",
        "data sets": str(len({row["dataset"] for row in rows})),
        "methods": str(len({row["method"] for row in rows})),
        "seeds": str(len({row["seed"] for row in rows})),
        "training time": f"{sum(float(row['train_seconds']) for row in rows) / 3600:.1f} h",
    }
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts.items())
    versions = sorted({row["versions"] for row in rows})
    return (
        f"<header><h1>{html.escape(title)}</h1><p>MAP over the whole ranking unless a table says otherwise, in the "
        "exact mean over all orders of images at equal distance. Means and standard deviations are over seeds; each "
        f"seed draws its own split. {html.escape('; '.join(versions))}</p><dl>{items}</dl></header>\n"
    )


def _tables(own: Sequence[ResultTable], name: str, out: Path) -> Iterator[str]:
    for table in own:
        stem = out / "tables" / f"{name}-{table.name}"
        for suffix, text in ((".md", tables.markdown(table)), (".tex", tables.latex(table)),
                             (".csv", tables.tidy_csv(table))):  # fmt: skip
            write_text(stem.with_name(stem.name + suffix), text)
        text = f"{_over_seeds(table.ours.values())}; the best of each length is bold."
        if table.published:
            text += f" Beside: what the paper reports on {table.published_name}, with its own network."
        yield section(f"{name}: {table.title}", text, tables.html_table(table))


def _over_seeds(own: Collection[tables.Figure]) -> str:
    """Say what these figures are taken over."""
    seeds = sorted({figure.n for figure in own})
    if seeds == [1]:
        return "One seed"
    return f"Means and standard deviations over {' or '.join(map(str, seeds))} seeds"


def _compared(bench: Bench, own: Sequence[ResultTable], dataset: str) -> Iterator[Drawn]:
    """Draw the figures that set runs beside one another."""
    by_name = {table.name: table for table in own}
    if "methods" in by_name:
        table = by_name["methods"]
        bits = _shown_bits(table.bits)
        maps = {row: table.ours[row, bits] for row in table.rows if (row, bits) in table.ours}
        if maps:
            drawing = figures.map_by_row({r: (f.mean, f.deviation) for r, f in maps.items()}, f"MAP at {bits} bits")
            yield Drawn("map", f"all rows at {bits} bits", f"{_over_seeds(maps.values())}.", drawing)
            ablations = by_name["ablations"].rows[1:] if "ablations" in by_name else []
            ranked = sorted((row for row in maps if row not in ablations), key=lambda row: -maps[row].mean)
            curves = _curves(bench, table, dataset, bits, _spread(ranked, table.rows[0]))
            text = f"Precision over recall at {bits} bits, first seed: {len(curves)} rows from the best to the last."
            yield Drawn("precision-recall", "precision and recall", text, figures.precision_recall(curves))
    if "ablations" in by_name:
        table = by_name["ablations"]
        bits = _shown_bits(table.bits)
        curves = _curves(bench, table, dataset, bits, table.rows[:_CURVES])
        if curves:
            text = f"Precision of the first k, up to {_FIRST:,}, at {bits} bits, first seed."
            yield Drawn("precision-at-k", "ablations", text, figures.precision_at_k(curves, _FIRST))
    rows = bench.of("curves", dataset)
    if rows:
        runs = {f"{row['method']}, {row['bits']} bits": row for row in rows[:_CURVES]}
        drawing = figures.training_compared(
            {name: bench.run(row).metrics() for name, row in runs.items()},
            {name: float(row["map"]) for name, row in runs.items()},
        )
        yield Drawn("curves", "how they learn", "Loss and MAP of the training images over the epochs.", drawing)


def _spread(ranked: Sequence[str], first: str) -> list[str]:
    """Return the first row of a table and others, spread over the ranking: neighbours would lie as one line."""
    others = [row for row in ranked if row != first]
    step = (len(others) - 1) / (_CURVES - 2)
    chosen = {first, *(others[round(place * step)] for place in range(_CURVES - 1) if others)}
    return [row for row in ranked if row in chosen]


def _curves(
    bench: Bench, table: ResultTable, dataset: str, bits: int, wanted: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return the precision–recall curve of the first seed of each of these rows of a table."""
    keys = table.heading.split(", ")
    found: dict[str, dict[str, list[float]]] = {}
    for row in bench.of(table.name, dataset):
        name = ", ".join(tables.row_name(row[key]) for key in keys)
        if int(row["bits"]) == bits and name in wanted and name not in found:
            found[name] = bench.run(row).evaluation()["precision_recall"]
    return {name: found[name] for name in wanted if name in found}


def _shown_bits(bits: Sequence[int]) -> int:
    return min(bits, key=lambda b: abs(b - _SHOWN_BITS))


def _studied(bench: Bench, dataset: str, sheet: Path) -> Iterator[Drawn]:
    """Draw what the uncertainty of the first run with a study says, and sum up all studies."""
    studies = [
        (row, own) for row in bench.rows if row["dataset"] == dataset and (own := bench.run(row).study()) is not None
    ]
    shown = next(((row, own) for row, own in studies if "scatter" in own), None)
    if shown is None:
        return
    row, own = shown
    run = bench.run(row)
    what = f"{row['method']}, {row['bits']} bits, seed {row['seed']}"
    scatter = own["scatter"]
    drawing = figures.precision_by_uncertainty(scatter["uncertainty"], scatter["average_precision"])
    text = (
        f"Queries of {what} in the order of their uncertainty. The table has all runs that were studied: the rank "
        "correlation of each predictor with average precision (negative is right), MAP of the more certain half of the "
        "queries and of the other half, and how well it tells the bits that flip when the image shifts (area under the "
        "ROC curve; 0.5 is chance)."
    )
    yield Drawn("uncertainty", "does uncertainty mean something?", text, drawing, _study_table(studies))
    if "bits" in own:
        rates = {name: values["flip_rate_by_tenth"] for name, values in own["bits"].items()}
        text = f"{what}: {own['flip_rate']:.1%} of the bits flip when the image moves by a thirty-second of its side."
        yield Drawn("flips", "bits under a small shift", text, figures.flips_by_tenth(rates))
    if len(run.trace()) > 1:
        text = f"{what}: outputs of the traced bits with the most and the least uncertainty; their sign is the bit."
        yield Drawn("two-bits", "two bits over the epochs", text, figures.two_bits(run.trace()), _extremes(run, sheet))


def _study_table(studies: Sequence[tuple[Row, dict[str, Any]]]) -> str:
    head = ("run", "predictor", "rank correlation", "certain half", "other half", "flips, AUC", "median u")
    lines = []
    for row, own in studies:
        slow = row.get("uncertainty_alpha") or ""
        name = f"{row['method']}, {row['bits']} bits, seed {row['seed']}" + (f", copy {slow}" if slow else "")
        for predictor, values in own["images"].items():
            bits = own.get("bits", {}).get(predictor)
            median = own["u"]["bits"][own["u"]["percentiles"].index(50)] if predictor == "uncertainty" else None
            cells = (
                name, predictor, f"{values['rank_correlation']:.3f}", f"{values['map_of_certain_half']:.3f}",
                f"{values['map_of_other_half']:.3f}", "–" if bits is None else f"{bits['auc']:.3f}",
                "–" if median is None else f"{median:.2g}",
            )  # fmt: skip
            lines.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>\n")
    titles = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<div class="rows"><table><thead><tr>{titles}</tr></thead><tbody>\n{"".join(lines)}</tbody></table></div>'


def _extremes(run: Run, sheet: Path) -> str:
    """Show the least and the most uncertain images of the database, and draw them to `sheet`, if they are still there.

    (The paper's Fig. 1, bottom.)
    """
    _, database = run.load_codes()
    unsure = database.image_uncertainty
    try:
        dataset = _dataset(run)
    except DmuhError as error:
        log.warning("the images of %s are not shown: %s", run.path.name, error)
        return ""
    if unsure is None or dataset.vectors is not None:
        return ""
    order = np.argsort(unsure, kind="stable")
    blocks, rows = [], []
    for title, chosen in (("Least uncertain", order[:_EXTREMES]), ("Most uncertain", order[::-1][:_EXTREMES])):
        positions = database.ids[chosen].tolist()
        labels = [dataset.label_text(position) for position in positions]
        tiles = [
            f'<figure class="tile plain"><img src="{data_uri(dataset.images[position])}" width="64" height="64" '
            f'alt="{html.escape(label)}"><figcaption>{unsure[i]:.2g}</figcaption></figure>'
            for i, position, label in zip(chosen, positions, labels, strict=True)
        ]
        blocks.append(f'<h3>{title}</h3><div class="row wrap">{"".join(tiles)}</div>')
        rows.append([
            Tile(dataset.images[position], f"u {unsure[i]:.2g}", label)
            for i, position, label in zip(chosen, positions, labels, strict=True)
        ])  # fmt: skip
    with written_whole(sheet) as temporary:
        contact_sheet(rows).save(temporary, "PNG")
    return "".join(blocks)


def _dataset(run: Run) -> Dataset:
    """Return the images a run was made with."""
    dataset = run.load_dataset()
    run.load_split(dataset)  # says so if these are others by now
    return dataset


def _save(drawing: Drawing, stem: Path) -> None:
    write_text(stem.with_name(stem.name + ".svg"), drawing.light)
    write_text(stem.with_name(stem.name + "-dark.svg"), drawing.dark)
    with written_whole(stem.with_name(stem.name + ".png")) as temporary:
        temporary.write_bytes(drawing.png)
