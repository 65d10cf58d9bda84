"""When the compiled kernels do the work, and when numpy does it at once.

A kernel takes seconds to compile the first time after an install, and half a second to load in each process after that.
numpy gives the same results without that wait, but takes longer per pair of codes. So numpy does small work until the
kernels are there, and kernels are compiled for work that is worth it: at once for a large piece, and beside the work
once many small pieces have come.
"""

import atexit
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from dmuh.machine.workers import worker_process

_AT_ONCE = 200_000_000  # pairs of codes that numpy compares in about a second
_IN_ALL = 2_000_000_000  # pairs compared by numpy in one process after which its kernels are compiled

_only: ContextVar[bool | None] = ContextVar("only", default=None)


@contextmanager
def only(*, compiled: bool) -> Iterator[None]:
    """Let the kernels, or else numpy, do all work of this thread inside, however large it is."""
    token = _only.set(compiled)
    try:
        yield
    finally:
        _only.reset(token)


class KernelUse:
    """Decides for one set of kernels; `rehearsals` is "module:function", which returns what compiles them, by name."""

    def __init__(self, rehearsals: str) -> None:
        self._rehearsals = rehearsals
        self._ready: set[tuple[str, str]] = set()
        self._pairs = 0  # compared by numpy so far
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def worth(self, words: np.dtype[Any], pairs: int, *kernels: str) -> bool:
        """Return whether kernels shall do work of so many pairs of words; which of those named, the caller decides."""
        chosen = _only.get()
        if chosen is not None:
            return chosen
        if pairs > _AT_ONCE or self._ready.issuperset((kernel, words.name) for kernel in kernels):
            return True
        self._pairs += pairs
        if self._pairs > _IN_ALL:
            self.prepare()
        return False

    def note_ready(self, words: np.dtype[Any], kernel: str) -> None:
        """Note that a kernel is compiled for words of a type: from now on it does small work too."""
        self._ready.add((kernel, words.name))

    def rehearsals(self) -> dict[str, Callable[[], None]]:
        """Return what compiles, or loads, all kernels, by a name that a user can read."""
        return _named(self._rehearsals)

    def prepare(self, then: Callable[[], None] = lambda: None) -> None:
        """Load the kernels beside the work, once; numpy does the work until then. `then` is called when they are there.

        A thread takes up the machine code that was kept. What was not, another process compiles first, so that nothing
        here waits for the interpreter's lock meanwhile.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._rehearse, args=(then,), name="dmuh-kernels", daemon=True)
            self._thread.start()
            atexit.register(self._stop)

    def _rehearse(self, then: Callable[[], None]) -> None:
        from dmuh.index.compiled import NotKeptError, only_kept  # which imports the compiler

        try:
            with only_kept():
                self._load()
        except NotKeptError:
            self._compile()
            self._load()
        if not self._stopping.is_set():
            then()

    def _compile(self) -> None:
        """Have another process compile all kernels and keep them; it ends with this one."""
        compiling = worker_process(_rehearse_all, self._rehearsals)
        compiling.start()
        while compiling.is_alive():
            if self._stopping.wait(0.1):
                compiling.kill()
                compiling.join()

    def _load(self) -> None:
        for rehearse in self.rehearsals().values():
            if self._stopping.is_set():
                return
            rehearse()

    def _stop(self) -> None:
        """End the other process, and let the thread end before the interpreter does, which must not be left in it."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()


def _named(rehearsals: str) -> dict[str, Callable[[], None]]:
    module, function = rehearsals.split(":")
    found: dict[str, Callable[[], None]] = getattr(importlib.import_module(module), function)()
    return found


def _rehearse_all(rehearsals: str) -> None:
    for rehearse in _named(rehearsals).values():
        rehearse()


KERNELS = KernelUse("dmuh.index.rehearsal:rehearsals")
