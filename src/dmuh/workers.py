"""What works beside the main thread: threads that share one task, and processes.

Processes read images, make the runs of a grid, and decode what strangers send.
"""

import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from itertools import pairwise
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from dmuh.machine import cores

_hiding = threading.Lock()  # two starts at once would restore what the other had hidden


def over_cores(work: Callable[[int, int], None], n: int) -> None:
    """Call work(first, last) for parts of 0…n, one per core, at the same time; the work must release the GIL."""
    parts = max(1, min(cores(), n))
    edges = [part * n // parts for part in range(parts + 1)]
    own, *rest = pairwise(edges)
    others = [_threads().submit(work, *part) for part in rest]
    try:
        work(*own)
    finally:
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that help, which stay: to start one takes longer than many a search."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="dmuh-core")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked process has none of them


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of up to `workers` processes, each started when there is work for it.

    They are started afresh, never forked: the threads of torch and others do not survive a fork.
    """
    return ProcessPoolExecutor(workers, _Context())


def worker_process(work: Callable[..., None], *arguments: Any) -> SpawnProcess:
    """Return a process of its own, not started yet, that calls `work`, a function of a module."""
    return _Worker(target=work, args=arguments, daemon=True)


class _Worker(SpawnProcess):
    """A process that knows nothing of the user's script, is deaf to Ctrl-C and does not outlive its parent."""

    def start(self) -> None:
        """Start the process.

        A new process runs the script again to know what it defines: all that it imports, and all that it does unless it
        says `if __name__ == "__main__"`. Ours need nothing of it, so where it is found is hidden meanwhile.

        Ctrl-C reaches every process of a terminal, but it is the parent that ends its workers: they inherit a mask.
        """
        resource_tracker.ensure_running()  # whose first start takes the mask off again
        with _hiding:
            main = vars(sys.modules["__main__"])
            hidden: dict[str, Any] = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
            main["__spec__"] = None
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
                main.update(hidden)

    def run(self) -> None:
        """Work until the pool ends."""
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().run()


class _Context(SpawnContext):
    Process = _Worker


def _end_with_parent() -> None:
    """Wait for the parent's end, which may be killed before it can end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
