"""Evaluation of a million codes against the per-query sort that hashing repositories use.

    python benchmarks/evaluate.py [N_QUERIES] [N_DATABASE]

The peer sorts the database once a query; it is timed on 20 queries and scaled. Both use all cores that they can.
"""

import sys
from collections.abc import Iterator

import numpy as np
from measuring import Labels, learned_codes, megabytes_beyond, random_codes, seconds, table

from dmuh import Codes, evaluate, one_hot

TIMED = 20  # queries that the peer is timed on


def argsort_map(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, kind: str) -> float:
    """Return MAP as it is commonly computed: distances by matrix product, one sort a query."""
    signs = database.unpack().astype(np.float32) * 2 - 1
    wanted, given = query_labels.astype(np.float32), database_labels.astype(np.float32)
    total = 0.0
    for row, code in enumerate(query.unpack().astype(np.float32) * 2 - 1):
        relevant = given @ wanted[row] > 0
        distances = 0.5 * (query.n_bits - signs @ code)
        found = np.flatnonzero(relevant[np.argsort(distances, kind=kind)]) + 1
        if len(found):
            total += (np.arange(1, len(found) + 1) / found).mean()
    return total / len(query)


def peer_seconds(query: Codes, database: Codes, query_labels: Labels, database_labels: Labels) -> float:
    """Return the peer's time a query, without what it does once."""
    few, many = (
        seconds(lambda n=n: argsort_map(query[:n], database, query_labels[:n], database_labels, "quicksort"), 1)
        for n in (1, 1 + TIMED)
    )
    return (many - few) / TIMED


def cases(n_queries: int, n: int) -> Iterator[tuple[str, Codes, Codes, Labels, Labels]]:
    """Yield what is measured: a name, query and database codes, and their labels."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 14, n_queries + n)
    labels = one_hot(classes, 14)
    codes = learned_codes(classes, 48, 0.2, rng)
    yield (
        "14 classes, learned-like codes, 20% distinct",
        codes[:n_queries],
        codes[n_queries:],
        labels[:n_queries],
        labels[n_queries:],
    )
    codes = random_codes(n_queries + n, 48, rng)
    yield "14 classes, random codes", *_parted(n_queries, codes, labels)
    # several labels an image, common and rare ones, as annotated photos have them
    chance = 1 / (2 + np.arange(81))
    many = (rng.random((n_queries + n, 81)) < chance).astype(np.uint8)
    yield "81 labels, several an image, random codes", *_parted(n_queries, codes, many)


def _parted(n: int, codes: Codes, labels: Labels) -> tuple[Codes, Codes, Labels, Labels]:
    return codes[:n], codes[n:], labels[:n], labels[n:]


def main(n_queries: int = 7_000, n: int = 1_016_497) -> None:
    """Measure and print the table."""
    tiny = random_codes(10, 48, np.random.default_rng(1))
    evaluate(tiny, tiny, one_hot(np.arange(10)), one_hot(np.arange(10)))  # compile first
    rows = []
    for name, query, database, query_labels, database_labels in cases(n_queries, n):
        few = slice(0, 3)
        oracle = argsort_map(query[few], database, query_labels[few], database_labels, "stable")
        exact = evaluate(query[few], database, query_labels[few], database_labels, ties="index-order").map
        assert abs(oracle - exact) < 1e-6, (oracle, exact)
        peer = peer_seconds(query, database, query_labels, database_labels) * n_queries
        ours = seconds(lambda: evaluate(query, database, query_labels, database_labels), 2)  # noqa: B023
        memory = megabytes_beyond(lambda: evaluate(query, database, query_labels, database_labels))  # noqa: B023
        rows.append(
            {
                f"MAP of {n_queries:,} queries × {n:,} codes of 48 bits": name,
                "argsort a query": f"{peer:,.0f} s",
                "dmuh": f"{ours:.2f} s",
                "ratio": f"{peer / ours:,.0f}×",
                "memory beyond the data": f"{memory:,.0f} MB",
            }
        )
    print(table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
