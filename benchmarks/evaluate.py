"""Evaluation of a million codes against the per-query sort that hashing repositories use.

    python benchmarks/evaluate.py [N_QUERIES] [N_DATABASE]

The peer sorts the database once per query; it is timed on 20 queries and scaled. Both use all cores that they can. For
soft ranking the peer sorts the same whole numbers by numpy's radix sort of 16-bit numbers, the fastest that it has.
"""

import sys
from collections.abc import Iterator
from typing import Literal

import numpy as np
from measuring import Labels, learned_codes, megabytes_beyond, near_codes, random_codes, report, seconds, table
from numpy.typing import NDArray

from dmuh import Codes, evaluate, one_hot
from dmuh.index.kernel_use import only
from dmuh.index.soft import UNITS, pair_weights

TIMED = 20  # queries that the peer is timed on


class ArgsortEvaluator:
    """MAP as it is commonly computed: distances by matrix product, one sort of the database per query."""

    kind: Literal["quicksort", "stable"] = "quicksort"

    def __init__(self, database: Codes, database_labels: Labels) -> None:
        self.signs = database.unpack().astype(np.float32) * 2 - 1
        self.labels = database_labels.astype(np.float32)

    def order(self, query: Codes) -> Iterator[NDArray[np.int64]]:
        """Yield the order of the database for each query."""
        for code in query.unpack().astype(np.float32) * 2 - 1:
            yield np.argsort(0.5 * (query.n_bits - self.signs @ code), kind=self.kind)

    def map(self, query: Codes, query_labels: Labels) -> float:
        """Return the mean average precision over all ranks."""
        total = 0.0
        for order, labels in zip(self.order(query), query_labels.astype(np.float32), strict=True):
            relevant = self.labels @ labels > 0
            found = np.flatnonzero(relevant[order]) + 1
            if len(found):
                total += (np.arange(1, len(found) + 1) / found).mean()
        return total / len(query)


class SoftArgsortEvaluator(ArgsortEvaluator):
    """The same by soft distances. A whole number of units per bit and level takes a column for each of both."""

    def __init__(self, database: Codes, database_labels: Labels) -> None:
        super().__init__(database, database_labels)
        self.worth = database.worth
        levels = database.level() == np.arange(2**database.sure)[:, None, None]  # (levels, n, n_bits)
        self.signs = np.concatenate([self.signs * level for level in levels], axis=1)

    def order(self, query: Codes) -> Iterator[NDArray[np.int64]]:
        """Yield the order of the database for each query."""
        weights = pair_weights(query, self.worth) * (query.unpack()[:, :, None] * np.float32(2) - 1)
        for weight in weights.swapaxes(1, 2).reshape(len(query), -1):
            scores = (UNITS * query.n_bits - self.signs @ weight).astype(np.uint16)
            yield np.argsort(scores, kind="stable")


def cases(n_queries: int, n: int) -> Iterator[tuple[str, Codes, Codes, Labels, Labels]]:
    """Yield what is measured: a name, query and database codes, and their labels."""
    rng = np.random.default_rng(0)
    classes, asked = rng.integers(0, 14, n), rng.integers(0, 14, n_queries)
    labels = one_hot(asked, 14), one_hot(classes, 14)
    learned = learned_codes(classes, 48, 0.2, rng)
    yield "14 classes, learned-like codes, 20% distinct", near_codes(learned, n_queries, rng), learned, *labels
    codes = random_codes(n_queries, 48, rng), random_codes(n, 48, rng)
    yield "14 classes, random codes", *codes, *labels
    # several labels an image, common and rare ones, as annotated photos have them
    chance = 1 / (2 + np.arange(81))
    many = [(rng.random((size, 81)) < chance).astype(np.uint8) for size in (n_queries, n)]
    yield "81 labels, several per image, random codes", *codes, *many
    sure = "soft ranking, one sure bit per bit, "
    yield sure + "14 classes, learned-like codes", *unsure(near_codes(learned, n_queries, rng), learned, rng), *labels
    yield sure + "14 classes, random codes", *unsure(*codes, rng), *labels
    yield sure + "81 labels, random codes", *unsure(*codes, rng), *many


def unsure(query: Codes, database: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return queries that know how sure they are, and a database with a bit of sureness per bit, hardly two alike."""
    n_bits = query.n_bits
    uncertainty = (rng.random((len(query), n_bits)) / 2).astype(np.float32)
    levels = random_codes(len(database), n_bits, rng).bits[:, None]
    worth = np.sort(rng.random((n_bits, 2)).astype(np.float32), axis=1)
    return Codes(query.bits, n_bits, uncertainty), Codes(database.bits, n_bits, levels=levels, worth=worth)


def main(n_queries: int = 7_000, n: int = 1_016_497) -> None:
    """Measure and print the table."""
    tiny = random_codes(10, 48, np.random.default_rng(1))
    for ranking in ("hamming", "soft"):
        with only(compiled=True):
            for labels in (one_hot(np.arange(10)), one_hot(np.zeros(10, int))):
                evaluate(tiny, tiny, labels, labels, ranking=ranking)  # compile first
    rows = []
    for name, query, database, query_labels, database_labels in cases(n_queries, n):
        few = slice(0, 3)
        peer = (SoftArgsortEvaluator if database.sure else ArgsortEvaluator)(database, database_labels)
        peer.kind = "stable"
        oracle = peer.map(query[few], query_labels[few])
        exact = evaluate(query[few], database, query_labels[few], database_labels, ties="index-order").map
        assert abs(oracle - exact) < 1e-6, (oracle, exact)
        peer.kind = "quicksort"
        timed = seconds(lambda: peer.map(query[:TIMED], query_labels[:TIMED]), 1) / TIMED * n_queries  # noqa: B023
        ours = seconds(lambda: evaluate(query, database, query_labels, database_labels), 2)  # noqa: B023
        memory = megabytes_beyond(lambda: evaluate(query, database, query_labels, database_labels))  # noqa: B023
        rows.append(
            {
                f"MAP of {n_queries:,} queries × {n:,} codes of 48 bits": name,
                "argsort per query": f"{timed:,.0f} s",
                "dmuh": f"{ours:.2f} s",
                "ratio": f"{timed / ours:,.0f}×",
                "memory beyond the data": f"{memory:,.0f} MB",
            }
        )
    report("evaluate", table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
