"""What the studies of uncertainty found that a bench made: figures, a table and images."""

import html
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.datasets import Dataset
from dmuh.errors import DmuhError
from dmuh.files import written_whole
from dmuh.report import figures
from dmuh.report.benches import Part
from dmuh.report.markup import Drawn
from dmuh.report.tables import Row, html_rows, markdown_rows
from dmuh.report.thumbnails import Tile, contact_sheet, data_uri
from dmuh.runs import Run

log = logging.getLogger(__name__)

_EXTREMES = 12  # images of least and of most uncertainty

Study = tuple[Row, dict[str, Any]]  # the line of a run, and what its study found


def draw_studies(part: Part, sheet: Path) -> Iterator[Drawn]:
    """Draw what the uncertainty of the first run with a study says, and sum up all studies."""
    studies = [(row, found) for row in part.rows if (found := part.run(row).study()) is not None]
    shown = next(((row, found) for row, found in studies if "scatter" in found), None)
    if shown is None:
        return
    row, found = shown
    run = part.run(row)
    what = f"{row['method']}, {row['bits']} bits, seed {row['seed']}"
    scatter = found["scatter"]
    drawing = figures.precision_by_uncertainty(scatter["uncertainty"], scatter["average_precision"])
    text = (
        f"Queries of {what} in the order of how much is expected to be missing to their average precision. The table "
        "has all runs that were studied: the rank correlation of each measure with average precision (negative is "
        "right), MAP of the surer half of the queries and of the other half, how well it tells the bits that flip when "
        "the image shifts (area under the ROC curve; 0.5 is chance), and how far the probability is from what happened."
    )
    cells = _study_cells(studies)
    of_studies = html_rows(*cells), markdown_rows(*cells)
    yield Drawn("uncertainty", "Does uncertainty mean something?", text, drawing, *of_studies)
    if "bits" in found:
        rates = {name: values["flip_rate_by_tenth"] for name, values in found["bits"].items()}
        text = f"{what}: {found['flip_rate']:.1%} of the bits flip when the image moves by a thirty-second of its side."
        yield Drawn("flips", "Bits under a small shift", text, figures.flips_by_tenth(rates))
    if "calibration" in found:
        said, seen = found["calibration"]["said"], found["calibration"]["seen"]
        text = (
            f"{what}: tenths of the queries' bits by the probability that they turn over, and how many of them are not "
            "those of most database images that share a label. On the line a probability is what it says."
        )
        yield Drawn("reliability", "How often bits turn over", text, figures.reliability(said, seen))
    if len(run.trace()) > 1:
        text = f"{what}: outputs of the traced bits with the most and the least uncertainty; their sign is the bit."
        drawing, images = figures.two_bits(run.trace()), _extremes(run, sheet)
        yield Drawn("two-bits", "Two bits over the epochs", text, drawing, images, of_the_paper=True)


def _study_cells(studies: Sequence[Study]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table of what each measure of each run predicts."""
    head = ["run", "measure", "rank correlation", "surer half", "other half", "flips, AUC", "calibration error"]
    lines = []
    for row, found in studies:
        alpha = row.get("uncertainty_alpha") or ""
        name = f"{row['method']}, {row['bits']} bits, seed {row['seed']}" + (f", copy {alpha}" if alpha else "")
        for predictor, values in found["images"].items():
            bits = found.get("bits", {}).get(predictor)
            error = found.get("calibration", {}).get("error") if predictor == "turnover" else None
            lines.append([
                name, predictor, f"{values['rank_correlation']:.3f}", f"{values['map_of_certain_half']:.3f}",
                f"{values['map_of_other_half']:.3f}", "–" if bits is None else f"{bits['auc']:.3f}",
                "–" if error is None else f"{error:.3f}",
            ])  # fmt: skip
    return head, lines


def _extremes(run: Run, sheet: Path) -> str:
    """Show the least and the most uncertain images of the database, and draw them to `sheet`, if they are still there.

    (The paper's Fig. 1, bottom.)
    """
    _, database = run.load_codes()
    uncertainty = database.image_uncertainty
    try:
        dataset = _dataset(run)
    except DmuhError as error:
        log.warning("the images of %s are not shown: %s", run.path.name, error)
        return ""
    if uncertainty is None or dataset.vectors is not None:
        return ""
    order = np.argsort(uncertainty, kind="stable")
    blocks, rows = [], []
    for title, chosen in (("Least uncertain", order[:_EXTREMES]), ("Most uncertain", order[::-1][:_EXTREMES])):
        positions = database.ids[chosen].tolist()
        labels = [dataset.label_text(position) for position in positions]
        tiles = [
            f'<figure class="tile plain"><img src="{data_uri(dataset.images[position])}" width="64" height="64" '
            f'alt="{html.escape(label)}"><figcaption>{uncertainty[i]:.2g}</figcaption></figure>'
            for i, position, label in zip(chosen, positions, labels, strict=True)
        ]
        blocks.append(f'<h4>{title}</h4><div class="row wrap">{"".join(tiles)}</div>')
        rows.append([
            Tile(dataset.images[position], f"u {uncertainty[i]:.2g}", label)
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
