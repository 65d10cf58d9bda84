"""Search in a million codes by Milvus and by HammingIndex: the same distances, insert rate and latency of both.

    python benchmarks/milvus.py [ADDRESS] [N] [N_QUERIES]

ADDRESS is milvus:FILE.db, or milvus:http://HOST:PORT of a server; by default a file that is removed again. Queries are
asked one at a time and then all together, k = 100. On the server of the wheel milvus==2.3.5, which is started for it:

    python tests/milvus_server.py python benchmarks/milvus.py milvus:http://127.0.0.1:19530
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import random_codes, report, table

from dmuh import Codes, HammingIndex
from dmuh.index import MilvusIndex

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
    main()
