"""Perceptual hashes: the nearest ten of one, against a loop over all of them, as is usual for lists of pHash values.

    python benchmarks/hashes.py

Hashes are random: real ones have more copies, which takes less time. Times are of the processor, medians of 21.
"""

import time
from collections.abc import Callable

import numpy as np
from measuring import random_codes, report, table

from dmuh import HammingIndex

K, TIMES = 10, 21


def median_ms(work: Callable[[], object], times: int = TIMES) -> float:
    """Return the median processor time of a piece of work, in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return 1000 * float(np.median(spent))


def row(n: int, n_bits: int, rng: np.random.Generator) -> dict[str, str]:
    """Measure one collection."""
    codes = random_codes(n, n_bits, rng)
    index, query = HammingIndex().add(codes), codes[:1]
    numbers = [int.from_bytes(code.tobytes(), "big") for code in codes.bits]

    def loop() -> list[int]:
        return sorted((numbers[0] ^ number).bit_count() for number in numbers)[:K]

    assert index.search(query, K).distances[0].tolist() == loop()  # which also compiles the kernel
    ours, theirs = median_ms(lambda: index.search(query, K)), median_ms(loop, 3)
    return {
        "hashes": f"{n:,}", "bits": str(n_bits), "a loop": f"{theirs:.1f} ms", "dmuh": f"{ours:.2f} ms",
        "ratio": f"{theirs / ours:.0f}×",
    }  # fmt: skip


def main() -> None:
    """Measure and print the table."""
    rng = np.random.default_rng(0)
    report("hashes", table([row(n, bits, rng) for n in (30_000, 1_000_000) for bits in (64, 256)]))


if __name__ == "__main__":
    main()
