"""Writes: what this process wrote to Milvus lately, and from when on a read sees it.

A write gets a timestamp of the server, and a read that names it waits until all up to it can be read. That takes until
the server's next tick, some hundred milliseconds, once per write and not once per read.
"""

import threading
from collections.abc import Callable

import numpy as np

from dmuh.index.base import Ids

_MOMENT = 2_000 << 18  # two seconds in timestamps, whose upper bits count milliseconds


class Writes:
    """The timestamps of writes, and the ids of those that were added in the last two seconds before the last one.

    A check for known ids asks the server for what is older, which can be read without waiting, and compares the rest
    here. Timestamps of 0, which the engine of one file gives, stand for what can be read at once.
    """

    def __init__(self, since: int) -> None:
        self._lock = threading.Lock()
        self._last = self._floor = since
        self._in_doubt = False
        self._recent: list[tuple[int, Ids]] = []

    @property
    def last(self) -> int:
        """Timestamp that shows everything written so far, at least 1."""
        return max(1, self._last)

    def added(self, timestamp: int, ids: Ids) -> None:
        """Take down ids (n,) that were added."""
        if timestamp:
            with self._lock:
                self._last = max(self._last, timestamp)
                self._recent.append((timestamp, ids))
                self._forget()

    def changed(self, timestamp: int) -> None:
        """Take down that ids were removed, or that it is unknown what was written, up to a timestamp."""
        with self._lock:
            self._last = max(self._last, timestamp)
            self._floor = max(self._floor, timestamp)
            self._forget()

    def doubt(self) -> None:
        """Take down that a write got no answer: whether it is there can only be asked of the server."""
        self._in_doubt = True

    def resolved(self, now: Callable[[], int]) -> None:
        """After such a write, let reads wait for all up to now, a timestamp that is asked for only if it is needed."""
        if self._in_doubt:
            self._in_doubt = False
            try:
                self.changed(now())
            except BaseException:
                self._in_doubt = True
                raise

    def settled(self) -> tuple[int, Ids]:
        """Return a timestamp that hardly needs to be waited for, at least 1, and the ids that were added after it."""
        with self._lock:
            since = max(1, self._floor, self._last - _MOMENT)
            return since, np.concatenate([np.empty(0, np.int64), *(ids for when, ids in self._recent if when > since)])

    def _forget(self) -> None:
        oldest = max(self._floor, self._last - _MOMENT)
        self._recent = [(when, ids) for when, ids in self._recent if when > oldest]
