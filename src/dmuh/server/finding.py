"""Finding: what is looked for among all images of a catalogue, in a thread of its own."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dmuh.catalogue import Catalogue

log = logging.getLogger(__name__)

T = TypeVar("T")


class Finding(Generic[T]):
    """Calls `find` when its result is first asked for, and again when there are new images.

    The thread ends with the process, which does not wait for it: among many images it may take minutes.
    """

    def __init__(self, name: str, catalogue: Catalogue, find: Callable[[], list[T]]) -> None:
        self._name = name
        self._catalogue = catalogue
        self._find = find
        self._lock = threading.Lock()
        self._working = self._closed = False
        self._among: frozenset[int] | None = None  # the ids of the images that were looked at
        self._result: list[T] = []

    def close(self) -> None:
        """Let go of what is still looked for."""
        self._closed = True

    def found(self) -> tuple[list[T], bool]:
        """Return what was found, and whether it is still looked for."""
        ids = frozenset(self._catalogue.ids().tolist())
        with self._lock:
            if not self._working and (self._among is None or not ids <= self._among):
                self._working, self._among, self._result = True, ids, []
                threading.Thread(target=self._work, name=f"dmuh-{self._name}", daemon=True).start()
            return self._result, self._working

    def _work(self) -> None:
        result: list[T] = []
        try:
            result = self._find()
        except Exception:
            if not self._closed:  # else its catalogue was closed meanwhile
                log.exception("%s could not be looked for", self._name)
        with self._lock:
            self._result, self._working = result, False
