"""What works beside the main thread: threads that share one task, and processes.

Processes read images, make the runs of a grid, and decode what strangers send.
"""

import functools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from dmuh.machine import cores

T = TypeVar("T")
_CTRL_C = 0.1  # seconds that Ctrl-C may wait
_hiding = threading.Lock()  # two starts at once would restore what the other had hidden


def over_cores(work: Callable[[int, int], None], n: int) -> None:
    """Call work(first, last) for parts of 0…n, one per core, at the same time; the work must release the GIL."""
    parts = max(1, min(cores(), n))
    edges = [part * n // parts for part in range(parts + 1)]
    first, *rest = pairwise(edges)
    own, others = [first], []
    for part in rest:
        try:
            others.append(_threads().submit(work, *part))
        except RuntimeError:  # this process is ending: threads take nothing more
            own.append(part)
    try:
        for part in own:
            work(*part)
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


@contextmanager
def killable_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give such a pool; if anything stops this process its workers are killed, whose work must bear that."""
    pool = process_pool(workers)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, which must be short.

    Python raises KeyboardInterrupt anywhere, also where a pool or a future has just taken a lock and not yet noted that
    it must give it back. The pool would wait for that lock for ever, and whoever ends the pool with it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # it is raised in the main thread alone
        return
    pressed: list[Any] = []
    signal.signal(signal.SIGINT, lambda *what: pressed.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(*pressed[0])


def wait_for_one(futures: Collection[Future[T]], seconds: float = math.inf) -> set[Future[T]]:
    """Wait until one of these is done, or for so long; return those that are done. Ctrl-C ends it, and does no harm."""
    end = time.monotonic() + seconds
    done: set[Future[T]] = set()
    while not done and (left := end - time.monotonic()) > 0:
        with uninterrupted():
            done = wait(futures, min(left, _CTRL_C), FIRST_COMPLETED).done
    return done


def result_of(future: Future[T]) -> T:
    """Wait for a result. Ctrl-C ends the wait, and does the pool no harm."""
    wait_for_one((future,))
    with uninterrupted():
        return future.result()


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
