"""Finding: what is looked for among all images of a catalogue, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from dmuh.catalogue import Catalogue

T = TypeVar("T")


class Finding(Generic[T]):
    """Calls `find` when its result is first asked for, and again when there are new images."""

    def __init__(self, name: str, catalogue: Catalogue, find: Callable[[], list[T]]) -> None:
        self._catalogue = catalogue
        self._find = find
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"dmuh-{name}")
        self._future: Future[list[T]] | None = None
        self._among: frozenset[int] = frozenset()  # the ids of the images that were looked at

    def close(self) -> None:
        """End the thread, when it has finished what it began."""
        self._thread.shutdown(cancel_futures=True)

    def found(self) -> tuple[list[T], bool]:
        """Return what was found, and whether it is still looked for."""
        ids = frozenset(self._catalogue.ids().tolist())
        if self._future is None or (self._future.done() and not ids <= self._among):
            self._among = ids
            self._future = self._thread.submit(self._find)
        return (self._future.result(), False) if self._future.done() else ([], True)
