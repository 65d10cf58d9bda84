"""One pass over many queries, shared by the cores that this process may use."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from dmuh.machine import cores


def share(work: Callable[[int, int], None], n: int) -> None:
    """Call work(first, last) for parts of 0…n, one a core, at the same time; the work must release the lock."""
    parts = max(1, min(cores(), n))
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    own, *rest = pairwise(edges)
    others = [_helpers().submit(work, *part) for part in rest]
    try:
        work(*own)
    finally:
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads that help, which stay: to start one takes longer than many a search."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dmuh-share")


os.register_at_fork(after_in_child=_helpers.cache_clear)  # a forked process has none of them
