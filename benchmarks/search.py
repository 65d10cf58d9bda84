"""Exact search in a million codes against FAISS.

    python benchmarks/search.py [N] [N_QUERIES] [PART…] [CODES]

Parts are exact, soft, real, approximate and large; all by default. CODES is a file of `dmuh encode`: approximate and
large then take copies of its codes instead of made-up ones, each bit turned over as its level of sureness says.

The peer is faiss.IndexBinaryFlat as its documentation says, on codes of ceil(bits / 8) bytes. One thread each, the same
queries in one batch, k = 100. IVF is shown with the fewest lists that find all true neighbours, HNSW with the share of
them that it finds. Of 12 bits there are 4,096 codes at the most, so that fewer than 20% of them are distinct.

Soft search is by queries that know how sure their bits are, in plain codes and in codes with one bit of sureness per
bit; it stands beside the Hamming search of the same bits, and beside indexes of FAISS that take a real query too.
These times are those that the thread spent on a core.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from measuring import (
    graded_codes,
    learned_codes,
    learned_outputs,
    near_codes,
    random_codes,
    report,
    seconds,
    table,
    thread_seconds,
)
from numpy.typing import NDArray
from real_peers import real_peers

from dmuh import Codes, HammingIndex, Matches
from dmuh.index import cells, shuffled, turns
from dmuh.index.kernel_use import KERNELS
from dmuh.index.soft import UNITS, pair_weights, shown

K = 100
KINDS = ("random", "learned-like, 20% distinct")


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
    for kind in KINDS:
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
                    "dmuh": f"{our_time * 1e3:.4f} ms",
                    "ratio": f"{peer_time / our_time:,.1f}×",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def outputs_of(
    kind: str, n: int, n_queries: int, n_bits: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return real outputs of database and queries of a kind."""
    if kind == "random":
        return rng.standard_normal((n, n_bits), np.float32), rng.standard_normal((n_queries, n_bits), np.float32)
    return learned_outputs(n, n_queries, n_bits, 0.2, rng)


def check_soft(found: Matches, database: Codes, queries: Codes) -> None:
    """Raise unless what was found for the first queries is what the definition gives."""
    for row in range(3):
        weights = pair_weights(queries[row], database.worth)[0].astype(np.int32)  # (n_bits, levels)
        away = np.zeros(len(database), np.int32)
        for bit, (own, level) in enumerate(zip(database.unpack().T, database.level().T, strict=True)):
            sign = np.where(own == queries[row].unpack()[0, bit], -1, 1)
            away += UNITS + sign * weights[bit][level]
        order = np.lexsort((shuffled(database.ids) - turns(queries[row], "soft"), away))[:K]
        assert np.array_equal(found.ids[row], database.ids[order])
        assert np.array_equal(found.distances[row], shown(away[order]))


def soft_rows(n: int, n_queries: int) -> list[dict[str, str]]:
    """Compare soft search in plain and in graded codes with Hamming search of the same bits, one after the other."""
    rows = []
    rng = np.random.default_rng(0)
    for kind in KINDS:
        for n_bits in (12, 24, 32, 48, 64, 128):
            graded, queries = graded_codes(*outputs_of(kind, n, n_queries, n_bits, rng))
            peer = flat(graded)
            plain, with_levels = HammingIndex().add(graded.plain()), HammingIndex().add(graded)
            check_soft(plain.search(queries, K), graded.plain(), queries)
            check_soft(with_levels.search(queries, K), graded, queries)
            plain.search(queries, K, ranking="hamming")
            works = (
                lambda: peer.search(padded(queries), K),  # noqa: B023
                lambda: plain.search(queries, K, ranking="hamming"),  # noqa: B023
                lambda: plain.search(queries, K),  # noqa: B023
                lambda: with_levels.search(queries, K),  # noqa: B023
            )
            # by turns, so that what else the machine does meets all of them
            runs = [[thread_seconds(work, 2) / n_queries for work in works] for _ in range(9)]
            flat_time, hamming, soft, levels = (min(times) for times in zip(*runs, strict=True))
            rows.append(
                {
                    f"top {K} of {n:,} codes": f"{n_bits} bits, {kind}",
                    "IndexBinaryFlat": f"{flat_time * 1e3:.2f} ms",
                    "dmuh, Hamming": f"{hamming * 1e3:.4f} ms",
                    "soft": f"{soft * 1e3:.4f} ms",
                    "to Hamming": f"{soft / hamming:.2f}×",
                    "soft, graded": f"{levels * 1e3:.4f} ms",
                    "graded to Hamming": f"{levels / hamming:.2f}×",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def real_rows(n: int, n_queries: int) -> list[dict[str, str]]:
    """Show FAISS's indexes that take a real query, over the same outputs, beside soft search: bytes and time."""
    rows = []
    rng = np.random.default_rng(0)
    for n_bits in (24, 48):
        outputs, asked = outputs_of("learned-like", n, n_queries, n_bits, rng)
        graded, queries = graded_codes(outputs, asked)
        ours = ("dmuh, soft", graded.plain(), n_bits / 8), ("dmuh, soft, graded", graded, n_bits / 4)

        def note(name: str, size: float, took: float, n_bits: int = n_bits) -> None:
            what = {f"top {K} of {n:,}, learned-like": f"{n_bits} outputs: {name}"}
            rows.append({**what, "per image": f"{size:g} bytes", "time": f"{took * 1e3 / n_queries:.3f} ms"})
            print(rows[-1], file=sys.stderr, flush=True)

        for name, codes, size in ours:
            index = HammingIndex().add(codes)
            index.search(queries, K)
            note(name, size, thread_seconds(lambda: index.search(queries, K), 5))  # noqa: B023
        for name, size, peer in real_peers(outputs):
            note(name, size, thread_seconds(lambda: peer.search(asked, K), 3))  # noqa: B023
    return rows


def approximate_rows(n: int, n_queries: int, real: Codes | None) -> list[dict[str, str]]:
    """Show FAISS's approximate indexes on 64-bit codes beside exact search: time of the thread, and recall."""
    rows = []
    for kind in KINDS if real is None else ("trained",):
        rng = np.random.default_rng(0)
        database, queries = data(kind, n, n_queries, 64, rng) if real is None else copies(real, n, n_queries, rng)
        exact = HammingIndex().add(database)
        found = exact.search(queries, K)
        assert np.array_equal(found.ids, scanned(database).search(queries, K).ids)
        for name, index, settings in approximate_peers(database, kind):
            for setting in settings:
                one_thread()
                if setting:
                    index.nprobe = setting
                distances, _ = index.search(padded(queries), K)
                recall = float(((distances <= found.distances[:, -1:]) & (distances >= 0)).mean())
                if recall == 1 or setting == settings[-1]:
                    break
            works = (
                lambda: index.search(padded(queries), K),  # noqa: B023
                lambda: exact.search(queries, K),  # noqa: B023
            )
            peer_time, our_time = by_turns(works, n_queries)
            probed = f", {setting} probed" if setting else ""
            rows.append(
                {
                    f"top {K} of {n:,} codes of {database.n_bits} bits": f"{kind}: {name}{probed}",
                    "time": f"{peer_time * 1e3:.4f} ms",
                    "recall": f"{recall:.3f}",
                    "dmuh, exact": f"{our_time * 1e3:.4f} ms",
                    "ratio": f"{peer_time / our_time:.1f}×",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def by_turns(works: Sequence[Callable[[], Any]], n_queries: int) -> list[float]:
    """Return the shortest time of the thread per query of each work, done by turns: what else goes on meets all."""
    runs = [[thread_seconds(work, 2) / n_queries for work in works] for _ in range(5)]
    return [min(times) for times in zip(*runs, strict=True)]


def approximate_peers(database: Codes, kind: str) -> Iterator[tuple[str, Any, Sequence[int]]]:
    """Yield FAISS's approximate indexes with the codes, and the numbers of lists that are tried, fewest first."""
    n_bits = 8 * database.bits.shape[1]
    for n_lists in (1024, 4096):
        all_threads()
        ivf = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(n_bits), n_bits, n_lists)
        ivf.own_fields = False
        ivf.train(padded(database)[:: max(1, len(database) // (64 * n_lists))])
        ivf.add(padded(database))
        yield (
            f"IndexBinaryIVF, {n_lists} lists",
            ivf,
            (32,) if kind == "random" else (8, 16, 24, 32, 48, 64, 96, 128, 256),
        )
    if len(database) <= 1_000_000:
        all_threads()
        hnsw = faiss.IndexBinaryHNSW(n_bits, 16)
        hnsw.add(padded(database))
        yield "IndexBinaryHNSW, M = 16", hnsw, (0,)


def copies(codes: Codes, n: int, n_queries: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return n copies of codes, and queries, with bits turned over: as their levels say, or one in fifty."""
    parts = []
    for size in (n, n_queries):
        rows = np.sort(rng.integers(0, len(codes), size))
        turned = []
        for some in np.array_split(rows, -(-size // 50_000)):
            chance: Any = 0.02
            if codes.worth is not None:
                chance = (1 - codes.worth[np.arange(codes.n_bits), codes[some].level()]) / 2
            flips = rng.random((len(some), codes.n_bits), np.float32) < chance
            turned.append(codes.bits[some] ^ np.packbits(flips, axis=1, bitorder="little"))
        parts.append(Codes(np.concatenate(turned), codes.n_bits))
    return parts[0], parts[1]


def scanned(database: Codes) -> HammingIndex:
    """Return an index whose codes are not put into cells."""
    fewest, cells.FEWEST = cells.FEWEST, len(database) + 1
    index = HammingIndex().add(database)
    cells.FEWEST = fewest
    return index


def large_rows(n: int, n_queries: int, real: Codes | None) -> list[dict[str, str]]:
    """Compare a search in cells with one that compares all codes, and with one in a tenth of them."""
    rows = []
    for kind in KINDS if real is None else ("trained",):
        times: dict[int, tuple[float, float]] = {}
        for size in (n // 10, n):
            rng = np.random.default_rng(0)
            made = data(kind, size, n_queries, 64, rng) if real is None else copies(real, size, n_queries, rng)
            database, queries = made
            whole, celled = scanned(database), HammingIndex().add(database)
            one_thread()
            assert np.array_equal(celled.search(queries, K).ids, whole.search(queries, K).ids)
            works = (
                lambda: whole.search(queries, K),  # noqa: B023
                lambda: celled.search(queries, K),  # noqa: B023
            )
            whole_time, cell_time = by_turns(works, n_queries)
            times[size] = whole_time, cell_time
            all_threads()
        rows.append(
            {
                f"top {K} of {n:,} codes": kind,
                "scan": f"{times[n][0] * 1e3:.3f} ms",
                "cells": f"{times[n][1] * 1e3:.4f} ms",
                "ratio": f"{times[n][0] / times[n][1]:.1f}×",
                f"cells, of {n // 10:,}": f"{times[n // 10][1] * 1e3:.4f} ms",
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


def main(n: int, n_queries: int, parts: Sequence[str], real: Codes | None) -> None:
    """Measure and print the tables of these parts, with all kernels compiled."""
    for rehearse in KERNELS.rehearsals().values():
        rehearse()
    if "large" in parts:
        tables = [table(large_rows(10 * n, n_queries, real))]
        report("search-large", *tables, *([] if real is not None else [table([opening_row(10 * n)])]))
    if "approximate" in parts:
        sizes = (n, 10 * n) if "large" in parts else (n,)
        report("search-approximate", *(table(approximate_rows(size, n_queries, real)) for size in sizes))
    one_thread()
    if "exact" in parts:
        report("search", table(exact_rows(n, n_queries)))
    if "soft" in parts:
        report("search-soft", table(soft_rows(n, n_queries)))
    if "real" in parts:
        report("search-real", table(real_rows(n, n_queries)))


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()]
    file = next((word for word in sys.argv[1:] if word.endswith(".safetensors")), None)
    named = [word for word in sys.argv[1:] if not word.isdigit() and word != file]
    every = ["large", "approximate", "exact", "soft", "real"] if file is None else ["approximate"]
    sizes = (sizes + [1_000_000, 200][len(sizes) :])[:2]
    main(*sizes, named or every, None if file is None else Codes.load(file))
