"""Search in a million codes by Milvus and by HammingIndex: the same distances, insert rate and latency of both.

    python benchmarks/milvus.py [WHAT] [ADDRESS] [N] [N_QUERIES]

WHAT is one of these; by default the first three:

    speed    codes added and milliseconds per query, asked one at a time by both in turn, and all together, k = 100
    cells    what a server finds by BIN_IVF_FLAT of 1,024 cells, and how fast, by how many of them it looks into
    written  1,000 times: add a code and search it at once, remove it and search it at once; eight do so at a time
    recall   what a soft search by Milvus finds of the exact one, over codes with one sure bit per bit: the share of its
             answers that are at most as far away as the last exact one. Milvus weighs a shortlist of the nearest by
             Hamming distance, which HammingIndex gives here: the two differ in the choice among equal distances alone.
             Shortlists of 4,000 are the default, those of 16,384 the longest. It needs no Milvus.

ADDRESS is milvus:http://HOST:PORT of a server, or milvus:FILE.db. If none is given, the server of the wheel
milvus==2.3.5 is started for it, where it is installed; else `speed` alone is measured, on 20,000 codes in a file.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
from measuring import learned_codes, near_codes, random_codes, report, table
from numpy.typing import NDArray

from dmuh import Codes, HammingIndex
from dmuh.index import MilvusIndex
from dmuh.index.kernel_use import KERNELS
from dmuh.index.soft import pair_distances, shown

K = 100
N_BITS = 64
SERVER = Path(__file__).parents[1] / "tests" / "milvus_server.py"
ADDRESS = "milvus:http://127.0.0.1:19530"


def opened(address: str, **options: object) -> MilvusIndex:
    """Open a collection of its own."""
    return MilvusIndex(address, **{"collection": f"benchmark_{uuid4().hex}", "timeout": 600, **options})  # type: ignore[arg-type]


def added(index: HammingIndex | MilvusIndex, codes: Codes) -> tuple[float, float]:
    """Add codes; return how many that was per second, and the seconds until they were indexed after that."""
    began = time.perf_counter()
    index.add(codes)
    done = time.perf_counter()
    if isinstance(index, MilvusIndex):
        assert index.settle(1800), "Milvus did not index the codes in half an hour"
    return len(codes) / (done - began), time.perf_counter() - done


def asked(
    indexes: Sequence[HammingIndex | MilvusIndex], queries: Codes
) -> list[tuple[NDArray[np.int32], float, float]]:
    """Return for each index the distances, the median milliseconds of one query alone, and those of one among all."""
    for index in indexes:
        index.search(queries[:3], K)
    times, found = np.empty((len(indexes), len(queries))), [[] for _ in indexes]
    for row, query in enumerate(queries):
        for n, index in enumerate(indexes):
            began = time.perf_counter()
            found[n].append(index.search(query, K).distances[0])
            times[n, row] = time.perf_counter() - began
    together = []
    for index in indexes:
        began = time.perf_counter()
        index.search(queries, K)
        together.append(1000 * (time.perf_counter() - began) / len(queries))
    medians = (1000 * np.median(times, axis=1)).tolist()
    return list(zip(map(np.stack, found), medians, together, strict=True))


def speed(address: str, n: int, n_queries: int) -> None:
    """Print one row per engine."""
    for rehearse in KERNELS.rehearsals().values():  # else numpy would do the first searches
        rehearse()
    rng = np.random.default_rng(0)
    codes, queries = random_codes(n, N_BITS, rng), random_codes(n_queries, N_BITS, rng)
    served = address.startswith("milvus:http")
    indexes = {"HammingIndex": HammingIndex(), "Milvus, a server" if served else "Milvus, a file": opened(address)}
    rates = [added(index, codes) for index in indexes.values()]
    measured = asked(list(indexes.values()), queries)
    rows = [
        {
            f"{n:,} codes of {N_BITS} bits, top {K}": name,
            "codes added per second": f"{rate:,.0f}",
            "indexed after": f"{settled:.0f} s",
            "per query": f"{latency:.2f} ms",
            "ratio": f"{latency / measured[0][1]:,.0f}×",
            f"of {n_queries} asked together": f"{together:.2f} ms",
        }
        for name, (rate, settled), (_, latency, together) in zip(indexes, rates, measured, strict=True)
    ]
    if not np.array_equal(measured[0][0], measured[1][0]):
        sys.exit("the distances differ")
    report("milvus", table(rows), f"The distances of {n_queries} queries are equal.")


def cells(address: str, n: int, n_queries: int) -> None:
    """Print what an index of cells finds: one row per kind of codes and number of cells that are looked into."""
    rng = np.random.default_rng(0)
    learned = learned_codes(rng.integers(0, 100, n), N_BITS, 0.2, rng)
    kinds = {
        "100 classes, 20% distinct": (learned, near_codes(learned, n_queries, rng)),
        "random": (random_codes(n, N_BITS, rng), random_codes(n_queries, N_BITS, rng)),
    }
    rows = []
    for name, (codes, queries) in kinds.items():
        options = {"kind": "BIN_IVF_FLAT", "lists": 1024, "collection": f"benchmark_{uuid4().hex}"}
        _, settled = added(opened(address, **options), codes)
        exact = HammingIndex().add(codes)
        time.sleep(20)  # on a busy machine searches go over to the new index some seconds after it is loaded
        for probes in (8, 32, 128):
            index = opened(address, **options, probes=probes)
            (wanted, *_), (found, latency, _) = asked([exact, index], queries)
            near = {k: np.mean(found[:, :k] <= wanted[:, k - 1 : k]) for k in (10, 100)}
            rows.append(
                {
                    f"BIN_IVF_FLAT, {n:,} codes of {N_BITS} bits": name,
                    "cells looked into": f"{probes} of 1,024",
                    "recall, top 10": f"{near[10]:.3f}",
                    "recall, top 100": f"{near[100]:.3f}",
                    "per query": f"{latency:.2f} ms",
                    "indexed after": f"{settled:.0f} s",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    report("milvus-cells", table(rows))


def written(address: str, n_trials: int = 1000, at_once: int = 8) -> None:
    """Write and search at once, many times; say how often what was written was seen, and how long that took."""
    options = {"collection": f"benchmark_{uuid4().hex}"}
    rng = np.random.default_rng(0)
    opened(address, **options).add(random_codes(10_000, N_BITS, rng))
    codes = random_codes(n_trials, N_BITS, rng).with_ids(np.arange(n_trials) + 10_000)
    missed: list[str] = []
    waits: list[float] = []

    def work(own: Codes) -> None:
        index = opened(address, **options)
        for code in own:
            id_ = int(code.ids[0])
            index.add(code)
            began = time.perf_counter()
            found = index.search(code, 1)
            waits.append(time.perf_counter() - began)
            missed.extend(["added"] * int(found.ids[0, 0] != id_))
            index.remove([id_])
            missed.extend(["removed"] * int(index.search(code, 1).ids[0, 0] == id_))

    threads = [threading.Thread(target=work, args=[codes[first::at_once]]) for first in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = {
        "a search at once after": "an added code",
        "saw it": f"{len(waits) - missed.count('added'):,} of {n_trials:,}",
        "median wait": f"{1000 * np.median(waits):.0f} ms",
        "longest": f"{1000 * np.max(waits):.0f} ms",
    }
    gone = {
        "a search at once after": "a removed code",
        "saw it": f"{len(waits) - missed.count('removed'):,} of {n_trials:,}",
    }
    report("milvus-written", table([row, gone | {"median wait": "", "longest": ""}]))
    if missed or len(waits) != n_trials:
        sys.exit("some searches did not see what was written before")


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
            index = HammingIndex().add(codes)
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
    """Measure what is asked for."""
    words = sys.argv[1:]
    known = {"speed": speed, "cells": cells, "written": lambda address, *_: written(address)}
    chosen = [words.pop(0)] if words and words[0] in {*known, "recall"} else list(known)
    if chosen == ["recall"]:
        sizes = [int(word) for word in words]
        recall(*(sizes + [1_000_000, 100][len(sizes) :]))
        return
    address = words.pop(0) if words and words[0].startswith("milvus:") else None
    n, n_queries = ([int(word) for word in words] + [1_000_000, 100][len(words) :])[:2]
    if address is not None:
        for name in chosen:
            known[name](address, n, n_queries)
        return
    sys.path.insert(0, str(SERVER.parent))
    from milvus_server import why_none

    reason = why_none()
    if reason is None:
        own = [*sys.argv[1 : 1 + (len(chosen) == 1)], ADDRESS, str(n), str(n_queries)]
        os.execv(sys.executable, [sys.executable, str(SERVER), sys.executable, __file__, *own])
    print(f"{reason}: Milvus is measured in one file, on 20,000 codes", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        speed(f"milvus:{Path(folder) / 'codes.db'}", 20_000, n_queries)


if __name__ == "__main__":
    main()
