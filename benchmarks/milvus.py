"""Search in a million codes by Milvus and by HammingIndex: the same distances, insert rate and latency of both.

    python benchmarks/milvus.py [ADDRESS] [N] [N_QUERIES]
    python benchmarks/milvus.py recall [N] [N_QUERIES]

ADDRESS is milvus:FILE.db, or milvus:http://HOST:PORT of a server; by default a file that is removed again. Queries are
asked one at a time and then all together, k = 100. On the server of the wheel milvus==2.3.5, which is started for it:

    python tests/milvus_server.py python benchmarks/milvus.py milvus:http://127.0.0.1:19530

`recall` says what a soft search by Milvus finds of the exact one, over codes with one sure bit per bit: the share of
its answers that are at most as far away as the last exact one. Milvus weighs a shortlist of the nearest by Hamming
distance, which HammingIndex gives here: the two differ in the choice among equal distances alone. Shortlists of 4,000
are the default, those of 16,384 the longest.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from measuring import random_codes, report, table
from numpy.typing import NDArray

from dmuh import Codes, HammingIndex
from dmuh.index import MilvusIndex
from dmuh.index.soft import pair_distances, shown

K = 100
N_BITS = 64


def asked(index: HammingIndex | MilvusIndex, queries: Codes) -> tuple[np.ndarray, float]:
    """Return the distances to each query and the median milliseconds that an answer took."""
    index.search(queries[:1], K)
    distances, times = [], []
    for row in range(len(queries)):
        began = time.perf_counter()
        distances.append(index.search(queries[row : row + 1], K).distances[0])
        times.append(time.perf_counter() - began)
    return np.stack(distances), 1000 * float(np.median(times))


def learned(sizes: Sequence[int], n_bits: int, classes: int) -> Iterator[NDArray[np.float32]]:
    """Yield real outputs (size, n_bits) of so many images: noise around the centre of their class, or noise alone."""
    rng = np.random.default_rng(0)
    centres = rng.choice(np.array([-1, 1], np.float32), (max(classes, 1), n_bits)) * (classes > 0)
    for size in sizes:
        own = centres[rng.integers(0, len(centres), size)]
        yield own + np.float32(0.6 if classes else 1) * rng.standard_normal(own.shape, np.float32)


def graded(n: int, n_queries: int, n_bits: int, classes: int) -> tuple[Codes, Codes]:
    """Return queries with their exact uncertainty, and codes with one sure bit per bit: levels part at the median."""
    n_parts = -(-n // 100_000)
    sizes = [n * (part + 1) // n_parts - n * part // n_parts for part in range(n_parts)]
    outputs = learned([100_000, *sizes], n_bits, classes)
    first = next(outputs)
    unsure = _uncertainty(first)
    edges = np.median(unsure, axis=0)[:, None]
    is_sure = unsure < edges.T
    means = [np.average(1 - 2 * unsure, axis=0, weights=chosen) for chosen in (~is_sure, is_sure)]
    worth = np.stack(means, axis=1).astype(np.float32)
    made = [Codes.from_outputs(part, _uncertainty(part)).graded(edges, worth).stored() for part in outputs]
    starts = np.cumsum([0, *map(len, made)])
    codes = Codes.concatenated(
        [part.with_ids(np.arange(len(part)) + start) for part, start in zip(made, starts, strict=False)]
    )
    return Codes.from_outputs(first[:n_queries], unsure[:n_queries]), codes


def _uncertainty(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    return (0.5 - 0.5 * np.tanh(2 * np.abs(outputs))).astype(np.float32)


def recall(n: int, n_queries: int) -> None:
    """Print what shortlists find, one row for each kind and width of codes."""
    rows = []
    for name, classes in (("random", 0), ("100 classes", 100), ("10 classes", 10)):
        for n_bits in (12, 24, 32, 48, 64):
            queries, codes = graded(n, n_queries, n_bits, classes)
            index = HammingIndex(tables=False).add(codes)
            row = {f"recall, {n:,} codes": f"{name}, {n_bits} bits"}
            for shortlist in (4_000, 16_384):
                near = index.search(queries, shortlist, ranking="hamming").ids
                for k in (10, 100):
                    last = index.search(queries, k, ranking="soft").distances[:, -1:]
                    away = [shown(pair_distances(one, codes[own]))[0] for one, own in zip(queries, near, strict=True)]
                    found = np.sort(np.stack(away), axis=1)[:, :k] <= last
                    row[f"top {k}, shortlist {shortlist:,}"] = f"{found.mean():.3f}"
            rows.append(row)
            print(rows[-1], file=sys.stderr, flush=True)
    report("milvus-recall", table(rows))


def main() -> None:
    """Print one row an engine."""
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    n_queries = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    rng = np.random.default_rng(0)
    codes, queries = random_codes(n, N_BITS, rng), random_codes(n_queries, N_BITS, rng)
    with tempfile.TemporaryDirectory() as folder:
        address = sys.argv[1] if len(sys.argv) > 1 else f"milvus:{Path(folder) / 'codes.db'}"
        engines = {"HammingIndex": HammingIndex(), "Milvus": MilvusIndex(address, collection="benchmark", timeout=600)}
        rows, found, latencies = [], [], []
        for name, index in engines.items():
            began = time.perf_counter()
            index.add(codes)
            rate = n / (time.perf_counter() - began)
            distances, latency = asked(index, queries)
            began = time.perf_counter()
            index.search(queries, K)
            together = 1000 * (time.perf_counter() - began) / n_queries
            found.append(distances)
            latencies.append(latency)
            rows.append(
                {
                    f"{n:,} codes of {N_BITS} bits, top {K}": name,
                    "codes added a second": f"{rate:,.0f}",
                    "a query": f"{latency:.2f} ms",
                    "ratio": f"{latency / latencies[0]:,.0f}×",
                    f"of {n_queries} asked together": f"{together:.2f} ms",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    if not np.array_equal(*found):
        sys.exit("the distances differ")
    report("milvus", table(rows), f"The distances of {n_queries} queries are equal.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["recall"]:
        sizes = [int(word) for word in sys.argv[2:]]
        recall(*(sizes + [1_000_000, 100][len(sizes) :]))
    else:
        main()
