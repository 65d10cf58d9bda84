"""Exact search in a million codes against FAISS.

    python benchmarks/search.py [N] [N_QUERIES]

The peer is faiss.IndexBinaryFlat as its documentation says, on codes of ceil(bits / 8) bytes. One thread each, the
same queries in one batch, k = 100. HNSW and IVF are shown with the share of true neighbours that they find. Of 12 bits
there are 4,096 codes at the most, so that fewer than 20% of them are distinct.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
from measuring import learned_codes, near_codes, random_codes, report, seconds, table
from numpy.typing import NDArray

from dmuh import Codes, HammingIndex

K = 100


def padded(codes: Codes) -> NDArray[np.uint8]:
    """Return the codes as bytes."""
    return np.ascontiguousarray(codes.bits)


def flat(codes: Codes) -> "faiss.IndexBinaryFlat":
    """Return FAISS's exact index over the codes."""
    index = faiss.IndexBinaryFlat(8 * codes.bits.shape[1])
    index.add(padded(codes))
    return index


def data(kind: str, n: int, n_queries: int, n_bits: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return database and query codes of a kind."""
    if kind == "random":
        return random_codes(n, n_bits, rng), random_codes(n_queries, n_bits, rng)
    learned = learned_codes(rng.integers(0, 14, n), n_bits, 0.2, rng)
    return learned, near_codes(learned, n_queries, rng)


def exact_rows(n: int, n_queries: int) -> list[dict[str, str]]:
    """Compare exact search over code lengths, on random and on learned-like codes."""
    rows = []
    rng = np.random.default_rng(0)
    for kind in ("random", "learned-like, 20% distinct"):
        for n_bits in (12, 24, 32, 48, 64, 128):
            database, queries = data(kind, n, n_queries, n_bits, rng)
            peer, ours = flat(database), HammingIndex().add(database)
            ours.search(queries, K)
            distances, _ = peer.search(padded(queries), K)
            assert np.array_equal(ours.search(queries, K).distances, distances)
            peer_time = seconds(lambda: peer.search(padded(queries), K)) / n_queries  # noqa: B023
            our_time = seconds(lambda: ours.search(queries, K)) / n_queries  # noqa: B023
            rows.append(
                {
                    f"top {K} of {n:,} codes": f"{n_bits} bits, {kind}",
                    "IndexBinaryFlat": f"{peer_time * 1e3:.2f} ms",
                    "dmuh": f"{our_time * 1e3:.3f} ms",
                    "ratio": f"{peer_time / our_time:,.1f}×",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def approximate_rows(n: int, n_queries: int) -> list[dict[str, str]]:
    """Show FAISS's approximate indexes on 64-bit codes beside exact search: time and recall."""
    rng = np.random.default_rng(0)
    rows = []
    for kind in ("random", "learned-like, 20% distinct"):
        database, queries = data(kind, n, n_queries, 64, rng)
        exact = HammingIndex().add(database)
        farthest = exact.search(queries, K).distances[:, -1:]
        ivf = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(64), 64, 1024)
        ivf.own_fields = False
        ivf.train(padded(database)[:100_000])
        ivf.nprobe = 32
        hnsw = faiss.IndexBinaryHNSW(64, 16)
        for name, index in (("IndexBinaryIVF, 1024 lists, 32 probed", ivf), ("IndexBinaryHNSW, M = 16", hnsw)):
            all_threads()
            index.add(padded(database))
            one_thread()
            distances, _ = index.search(padded(queries), K)
            recall = float(((distances <= farthest) & (distances >= 0)).mean())
            peer_time = seconds(lambda: index.search(padded(queries), K)) / n_queries  # noqa: B023
            our_time = seconds(lambda: exact.search(queries, K)) / n_queries  # noqa: B023
            rows.append(
                {
                    "64 bits": f"{kind}: {name}",
                    "time": f"{peer_time * 1e3:.3f} ms",
                    "recall": f"{recall:.3f}",
                    "dmuh, exact": f"{our_time * 1e3:.3f} ms",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def large_rows(n: int, n_queries: int) -> list[dict[str, str]]:
    """Compare the two exact routes through a large index: scanning it, and the tables that it makes for itself."""
    rng = np.random.default_rng(0)
    rows = []
    for kind in ("random", "learned-like, 20% distinct"):
        database, queries = data(kind, n, n_queries, 64, rng)
        scanned, filed = HammingIndex(tables=False).add(database), HammingIndex().add(database)
        for _ in range(4):  # tables are made after some hundred queries
            answer = filed.search(queries, K)
        assert np.array_equal(answer.ids, scanned.search(queries, K).ids)
        one_thread()
        scan_time = seconds(lambda: scanned.search(queries, K), 1) / n_queries  # noqa: B023
        table_time = seconds(lambda: filed.search(queries, K), 1) / n_queries  # noqa: B023
        all_threads()
        rows.append(
            {
                f"top {K} of {n:,} codes of 64 bits": kind,
                "scan": f"{scan_time * 1e3:.2f} ms",
                "tables": f"{table_time * 1e3:.3f} ms",
                "ratio": f"{scan_time / table_time:.1f}×",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def one_thread() -> None:
    """Leave both engines one core."""
    os.sched_setaffinity(0, {0})
    faiss.omp_set_num_threads(1)


def all_threads() -> None:
    """Give both engines all cores."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    faiss.omp_set_num_threads(os.cpu_count() or 1)


def opening_row(n: int) -> dict[str, str]:
    """Measure how long a saved index of n codes takes to open, be checked, and answer its first query."""
    codes = random_codes(n, 64, np.random.default_rng(0))
    query = codes[:1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.safetensors"
        HammingIndex().add(codes).save(path)
        began = time.perf_counter()
        HammingIndex.load(path).search(query, 10)
        took, size = time.perf_counter() - began, path.stat().st_size
    what = "open, verify the checksum, answer one query"
    return {f"{n:,} codes of 64 bits": what, "time": f"{took:.2f} s", "file": f"{size / 1e6:,.0f} MB"}


def main(n: int = 1_000_000, n_queries: int = 200) -> None:
    """Measure and print the tables."""
    opening = opening_row(10 * n)
    large = large_rows(10 * n, n_queries)
    approximate = approximate_rows(n, n_queries)
    one_thread()
    report("search", table(exact_rows(n, n_queries)))
    report("search-approximate", table(approximate))
    report("search-large", table(large), table([opening]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
