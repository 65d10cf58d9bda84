"""CollectionMap: where each image of a catalogue lies, computed in a process of its own, and kept beside it."""

import logging
import os
import threading
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Catalogue
from dmuh.codes import Codes
from dmuh.errors import FormatError
from dmuh.files import load_arrays, save_arrays
from dmuh.machine.workers import worker_process
from dmuh.server.map.layout import layout

log = logging.getLogger(__name__)

_KIND, _VERSION = "dmuh map", 1
_NICE = 10  # whoever searches goes first


@dataclass(frozen=True)
class Places:
    """Places of images: ids (N), places (N, 2), and how they were found."""

    ids: NDArray[np.int64]
    places: NDArray[np.float32]
    how: str | None


_NONE = Places(np.empty(0, np.int64), np.empty((0, 2), np.float32), None)


class CollectionMap:
    """The map of a catalogue. It is computed when it is first asked for, and again when images are new."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._model = catalogue.about("model") or ""
        self.file = catalogue.file.with_name("map.safetensors")
        self._lock = threading.Lock()
        self._process: SpawnProcess | None = None
        self._failed: frozenset[int] = frozenset()  # ids of a map that could not be computed
        self._places = self._kept()

    def close(self) -> None:
        """End the process, if it works."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.join()
                self._process = None

    def places(self) -> tuple[Places, bool]:
        """Return the places of the images that are there, and whether those of others are being computed."""
        ids = self._catalogue.ids()
        with self._lock:
            if self._process is not None and not self._process.is_alive():
                self._take_up(ids)
            found = self._places
            missing = not np.isin(ids, found.ids).all()
            if missing and self._process is None and frozenset(ids.tolist()) != self._failed:
                self._process = self._start()
            there = np.isin(found.ids, ids)
            return Places(found.ids[there], found.places[there], found.how), self._process is not None

    def _start(self) -> SpawnProcess:
        codes = self._catalogue.codes()
        given = codes.bits, codes.n_bits, codes.ids, codes.levels, codes.worth
        process = worker_process(_compute, self.file, self._model, given)
        process.start()
        return process

    def _take_up(self, ids: NDArray[np.int64]) -> None:
        """Read what the process has computed; what failed is not tried again for the same images."""
        assert self._process is not None
        self._process.join()
        if self._process.exitcode:
            log.warning("the map could not be computed (exit code %s)", self._process.exitcode)
            self._failed = frozenset(ids.tolist())
        self._process = None
        self._places = self._kept()

    def _kept(self) -> Places:
        """Return what is kept; none if that is of another model, or damaged."""
        if not self.file.is_file():
            return _NONE
        try:
            kept = load_arrays(self.file, _KIND, _VERSION)
            ids, places = kept.arrays["ids"], kept.arrays["places"]
            fits = kept.metadata["model"] == self._model and places.shape == (len(ids), 2)
            return Places(ids, places, str(kept.metadata["how"])) if fits else _NONE
        except (FormatError, KeyError) as error:
            log.warning("the map is computed again: %s", error)
            return _NONE


def _compute(file: Path, model: str, given: tuple[Any, ...]) -> None:
    """Compute places and keep them; runs in a process of its own."""
    os.nice(_NICE)
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # read when scikit-learn is imported; more threads wait for each other on a busy machine
    )
    bits, n_bits, ids, levels, worth = given
    places, how = layout(Codes(bits, n_bits, ids=ids, levels=levels, worth=worth))
    save_arrays(file, _KIND, _VERSION, {"ids": ids, "places": places}, {"model": model, "how": how})
