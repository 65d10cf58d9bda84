"""One pass over many queries, shared by the cores that this process may use."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dmuh.machine import cores


def share(work: Callable[[int, int], None], n: int) -> None:
    """Call work(first, last) for parts of 0…n, one a core, at the same time; the work must release the lock."""
    threads = min(cores(), n)
    if threads <= 1:
        work(0, n)
        return
    edges = np.linspace(0, n, threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))
