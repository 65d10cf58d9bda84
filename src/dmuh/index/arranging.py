"""Beside the searches: codes that are searched often are put into cells by a thread."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """Makes something once it was asked for often enough, in a thread; until then there is nothing."""

    def __init__(self) -> None:
        self.made: T | None = None
        self._asked = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ask(self, times: int, enough: int, make: Callable[[], T | None]) -> None:
        """Count so many times; `make` is called once there are enough of them, in a thread that a process waits for."""
        with self._lock:
            self._asked += times
            if self._asked < enough or self._thread is not None:
                return
            self._thread = threading.Thread(target=self._make, args=(make,), name="dmuh-cells")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the thread, if there is one."""
        if self._thread is not None:
            self._thread.join()

    def _make(self, make: Callable[[], T | None]) -> None:
        self.made = make()
