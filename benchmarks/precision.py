"""What it costs to weigh bits in whole numbers: MAP by soft ranking in float32, and by 7, 15 and 31 units.

    python benchmarks/precision.py RUN [RUN ...]

RUN is the folder of a finished run that was evaluated, whose codes know how sure they are. Its queries, 500 at most,
rank its database by plain codes and, where there are levels, by those; ties count in the mean over all their orders.
"""

import sys
from pathlib import Path

import numpy as np
from measuring import Labels, report, table
from numpy.typing import NDArray

from dmuh import Codes
from dmuh.index.soft import UNITS
from dmuh.metrics.expected import average_precision, harmonic_numbers
from dmuh.runs import open_run

TRIED = (7, UNITS, 31)
QUERIES = 500


def mean_average_precision(
    query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, units: int | None
) -> float:
    """Return the MAP over all ranks by soft distance in so many units, or in float32."""
    worth = np.ones((query.n_bits, 1), np.float32) if database.worth is None else database.worth
    unsure = query.uncertainty
    assert unsure is not None, "the queries must know how sure they are"
    signs = database.unpack().astype(np.float32) * 2 - 1
    levels = database.level()
    columns = np.concatenate([signs * (levels == level) for level in range(worth.shape[1])], axis=1)
    harmonic = harmonic_numbers(len(database))
    total = 0.0
    for sure, bits, labels in zip(1 - 2 * unsure, query.unpack(), query_labels, strict=True):
        weights = sure[:, None] * worth  # (n_bits, levels)
        if units is not None:
            weights = np.rint(units * weights)
        scores = -(columns @ (weights * (bits * np.float32(2) - 1)[:, None]).T.ravel())
        total += _average(scores, (database_labels & labels).any(axis=1), harmonic)
    return total / len(query)


def _average(scores: NDArray[np.float32], relevant: NDArray[np.bool_], harmonic: NDArray[np.float64]) -> float:
    """Return the average precision of one query in the mean over all orders of ties."""
    order = np.argsort(scores)
    ranked = scores[order]
    begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    good = np.add.reduceat(relevant[order].astype(np.int64), begins)
    counts = np.diff(np.append(begins, len(ranked)))
    return float(average_precision(counts[None], good[None], len(scores), True, harmonic)[0])


def study(name: str, query: Codes, database: Codes, query_labels: Labels, database_labels: Labels) -> dict[str, str]:
    """Return a row of the table: MAP by float32, and how far that by whole numbers is from it."""
    data = query, database, query_labels, database_labels
    exact = mean_average_precision(*data, None)
    row = {"MAP by soft ranking": name, "float32": f"{exact:.4f}"}
    for units in TRIED:
        row[f"{units} units"] = f"{mean_average_precision(*data, units) - exact:+.5f}"
    return row


def main(*runs: str) -> None:
    """Measure and print the table."""
    rows = []
    for run in runs:
        opened = open_run(run)
        query, database = opened.run.load_codes()
        query = query[:QUERIES]
        labels = opened.dataset.labels[query.ids], opened.dataset.labels[database.ids]
        name = f"{Path(run).name}, {query.n_bits} bits"
        rows.append(study(f"{name}, plain codes", query, database.plain(), *labels))
        if database.sure:
            rows.append(study(f"{name}, {database.sure} of sureness per bit", query, database.stored(), *labels))
    report("precision", table(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
