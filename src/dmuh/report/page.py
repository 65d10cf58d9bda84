"""The page of a run: one HTML file that needs nothing else."""

import html
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.files import write_text
from dmuh.index import HammingIndex
from dmuh.report import figures
from dmuh.report.markup import figure, page, refuse_foreign_page, section
from dmuh.report.thumbnails import data_uri
from dmuh.runs import Run

_QUERIES, _NEAREST, _EXTREMES = 10, 10, 12
_CHANGES = " The distance between the network and its momentum copy is large where the output keeps changing."


def write_run_page(run: Run, dataset: Dataset, query: Codes, database: Codes, path: Path) -> None:
    """Write the page of a run that was evaluated; the ids of both codes are positions in the data set."""
    refuse_foreign_page(path)
    evaluation, metrics, trace = run.evaluation(), run.metrics(), run.trace()
    about = run.load_model().metadata
    copied = bool(trace) and "uncertainty" in trace[0]
    curve = evaluation["precision_recall"]
    sections = [
        _header(about, copied, evaluation, metrics, dataset),
        section(
            "Queries and what they find",
            "Each row is a query (left) and its nearest images. The number is the Hamming distance: how many of the "
            f"{database.n_bits} bits differ. ✓ shares a label with the query, ✗ does not. The last two rows are "
            "the queries with the lowest average precision.",
            _nearest_images(dataset, query, database, np.array(evaluation["average_precision"])),
        ),
        section(
            "How it learned",
            "The loss and its terms, and the mean average precision of training images and of images held out of the "
            "training. The test queries were looked at once, after the last epoch.",
            figure(figures.loss_curves(metrics)) + figure(figures.map_curves(metrics, evaluation["map"])),
        ),
        section(
            "How well it finds",
            "Precision of the first k images returned, and precision over recall, in the exact mean over all orders of "
            "images at equal distance.",
            figure(figures.precision_at_k({"": curve})) + figure(figures.precision_recall({"": curve})),
        ),
        _uncertain_images(dataset, query, database, evaluation),
        section(
            "A bit that settled and one that did not",
            f"Outputs of two bits of training images over the epochs; their sign is the bit.{_CHANGES * copied}",
            figure(figures.two_bits(trace)),
        ),
    ]
    title = f"{about['method']} on {dataset.name}, {about['n_bits']} bits"
    write_text(path, page(title, sections))


def _header(
    about: dict[str, Any], copied: bool, evaluation: dict[str, Any], metrics: list[dict[str, Any]], dataset: Dataset
) -> str:
    size = evaluation["n_database"] * -(-evaluation["n_bits"] // 8)
    facts = {
        "MAP": f"{evaluation['map']:.4f}",
        "bits": str(evaluation["n_bits"]),
        "queries": f"{evaluation['n_queries']:,}",
        "images in the database": f"{evaluation['n_database']:,}",
        "size of all codes": f"{size / 1000:,.0f} kB",
        "precision@10": f"{evaluation['precision_at']['10']:.4f}",
        f"precision, radius {evaluation['radius']}": f"{evaluation['precision_within_radius']:.4f}",
        "epochs": str(len(metrics)),
    }
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts.items())
    return (
        f"<header><h1>{html.escape(about['method'].upper())} on {html.escape(dataset.name)}</h1>"
        f"<p>A network that turns an image into {about['n_bits']} bits so that similar images differ in few of "
        f"them{', trained beside a momentum-averaged copy of itself' * copied}. "
        f"Backbone {html.escape(about['backbone'])}, "
        f"seed {about['seed']}, split {html.escape(about['split'])}.</p><dl>{items}</dl></header>\n"
    )


def _nearest_images(dataset: Dataset, query: Codes, database: Codes, precision: NDArray[np.float64]) -> str:
    """Show rows of queries and their nearest images: some spread over the queries, then the two worst."""
    worst = np.argsort(precision, kind="stable")[:2]
    others = np.setdiff1d(np.arange(len(query)), worst)
    spread = others[np.unique(np.linspace(0, len(others) - 1, _QUERIES - 2).astype(int))] if len(others) else others
    rows = [*spread.tolist(), *worst.tolist()]
    index = HammingIndex().add(database)
    matches = index.search(query[np.array(rows)], _NEAREST)
    lines = []
    for row, distances, ids in zip(rows, matches.distances, matches.ids, strict=True):
        image = int(query.ids[row])
        cells = [_tile(dataset, image, f"AP {precision[row]:.2f}", "query")]
        for distance, position in zip(distances.tolist(), ids.tolist(), strict=True):
            right = bool((dataset.labels[image] & dataset.labels[position]).any())
            caption = f"{'✓' if right else '✗'} {distance:.3g}"
            cells.append(_tile(dataset, position, caption, "right" if right else "wrong"))
        lines.append(f'<div class="row">{"".join(cells)}</div>')
    return f'<div class="rows">{"".join(lines)}</div>'


def _uncertain_images(dataset: Dataset, query: Codes, database: Codes, evaluation: dict[str, Any]) -> str:
    """Show the surest and the least sure images of the database (the paper's Fig. 1, bottom)."""
    uncertainty, of_queries = database.image_uncertainty, query.image_uncertainty
    if uncertainty is None or of_queries is None:
        return ""
    order = np.argsort(uncertainty, kind="stable")
    precision = np.array(evaluation["average_precision"])
    certain_first = np.argsort(of_queries, kind="stable")
    half = len(certain_first) // 2
    blocks = []
    for title, rows in (("Surest", order[:_EXTREMES]), ("Least sure", order[::-1][:_EXTREMES])):
        tiles = "".join(_tile(dataset, int(database.ids[i]), f"{uncertainty[i]:.2f}", "plain") for i in rows)
        blocks.append(f'<h3>{title}</h3><div class="row wrap">{tiles}</div>')
    return section(
        "Where it is unsure",
        "How much is expected to be missing to the average precision of a search from an image, by how sure its bits "
        "are and by what images with such codes found that did not train. MAP of the surer half of the queries is "
        f"{precision[certain_first[:half]].mean():.4f}, of the other half "
        f"{precision[certain_first[half:]].mean():.4f}.",
        "".join(blocks),
    )


def _tile(dataset: Dataset, position: int, caption: str, kind: str) -> str:
    label = dataset.label_text(position) or "no label"
    return (
        f'<figure class="tile {kind}"><img src="{data_uri(dataset.images[position])}" '
        f'alt="{html.escape(f"image {position}: {label}")}" title="{html.escape(label)}" width="64" height="64">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
