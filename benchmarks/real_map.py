"""MAP by storage: soft search beside FAISS's indexes that take a real query, over the outputs of one trained network.

    python benchmarks/real_map.py RUN

RUN is the folder of a finished run whose number of bits is a multiple of 4. Its queries, 500 at most, rank 12,000
images of its database at most. Peers rank by the inner product of tanh of the outputs, of which they keep as many bytes
as said.
"""

import sys
from pathlib import Path

import numpy as np
from measuring import report, table
from numpy.typing import NDArray
from real_peers import real_peers

from dmuh import evaluate
from dmuh.encoder.calibration import Calibration
from dmuh.images import Reading
from dmuh.network import choose_device, load_networks
from dmuh.protocols import Positions, protocol_of
from dmuh.runs import open_run
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.measuring import Outputs, compute_outputs

QUERIES, DATABASE = 500, 12_000


def some(positions: Positions, most: int) -> Positions:
    """Return a seeded choice of images, in their order."""
    return np.sort(np.random.default_rng(0).permutation(positions)[:most])


def mean_average_precision(ranked: NDArray[np.int64], relevant: NDArray[np.bool_]) -> float:
    """Return MAP of whole rankings (queries, n); `relevant` (queries, n) is by position."""
    hits = np.take_along_axis(relevant, ranked, axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return float(((precision * hits).sum(axis=1) / np.maximum(hits.sum(axis=1), 1)).mean())


def measured(queries: Outputs, database: Outputs, calibration: Calibration, labels: NDArray[np.uint8]) -> str:
    """Return a table of MAP by what is kept of each image."""
    of_query, of_database = labels[queries.positions], labels[database.positions]
    relevant = of_query.astype(np.float32) @ of_database.T.astype(np.float32) > 0
    rows, n_bits = [], queries.outputs.shape[1]

    def note(name: str, size: float, found: float) -> None:
        rows.append({"index": name, "per image": f"{size:g} bytes", "MAP": f"{found:.4f}"})
        print(rows[-1], file=sys.stderr, flush=True)

    for ranking, sure in (("hamming", 0), ("soft", 0), ("soft", 1), ("soft", 2)):
        kept = calibration.kept(database.codes(calibration, max(sure, 1)), sure)
        found = evaluate(queries.codes(calibration, max(sure, 1)), kept, of_query, of_database, ranking=ranking)
        note(f"dmuh, {ranking}" + f", {sure} sure per bit" * bool(sure), n_bits * (1 + sure) / 8, found.map)
    asked, kept_real = np.tanh(queries.outputs), np.tanh(database.outputs)
    ranked = np.argsort(-asked @ kept_real.T, axis=1, kind="stable")
    note("float32, exact", 4.0 * n_bits, mean_average_precision(ranked, relevant))
    for name, size, peer in real_peers(kept_real):
        _, ranked = peer.search(asked, len(kept_real))
        note(name, size, mean_average_precision(ranked, relevant))
    return table(rows)


def main(path: Path) -> None:
    """Measure and print the table."""
    run, config, data, split = open_run(path)
    model = run.load_model()
    network, source = load_networks(model, choose_device("cpu"))
    parts = some(split.query, QUERIES), some(split.database, DATABASE)
    with open_inputs(
        network, data, np.concatenate(parts), keep=config.network.freeze == "all", mirrored=split.query[:0],
        reading=Reading.by(config),
    ) as inputs:  # fmt: skip
        queries, database = (compute_outputs(network, source, inputs, part) for part in parts)
    counted = protocol_of(config.protocol, config.data.dataset).counted(data.labels, split)
    text = measured(queries, database, Calibration.of_card(model.metadata), counted)
    said = f"{config.method} on {config.data.dataset}, {model.metadata['n_bits']} bits, seed {config.training.seed}:"
    report("search-real-map", said, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
