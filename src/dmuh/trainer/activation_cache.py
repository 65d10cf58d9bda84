"""Activations of the frozen part of a network, computed once and kept on disk.

A frozen part gives an image the same activations in every epoch and every run, so they are computed once. They are kept
below `cache_folder()`, one folder for each data set, frozen part and mirroring:

    rows.bin    float32 (images, …), one row per image; rows that were never needed take no space
    done.bin    eight bytes per image: a checksum of its row, or zeros where the row is not written yet

Rows are on the disk before their checksums are, so a crash loses at most the rows of the last few seconds. A row that
does not fit its checksum is computed again.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.datasets import Dataset
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import DataError
from dmuh.files import locked, written_whole
from dmuh.images import ImageReader
from dmuh.machine import cache_folder
from dmuh.network import HashNetwork, to_device
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions

log = logging.getLogger(__name__)

_BATCH = 64
_SECONDS = 5.0  # between two times that rows are marked as done
_LARGEST_KEPT = 64 * 2**20  # bytes
_exported: dict[str, bytes] = {}  # the last frozen part in the ONNX format: what is trained is measured next


class ActivationCache:
    """The activations of one data set's images, given by one frozen part."""

    def __init__(self, network: HashNetwork, data: Dataset) -> None:
        self._network = network
        self._n_images = len(data)
        digest, part = hashlib.sha256(data.content_key().encode()), hashlib.sha256()
        for content in _identity(network):
            digest.update(content)
            part.update(content)
        self.name = digest.hexdigest()[:24]  # of these images and this frozen part
        self._folder = cache_folder() / "activations" / self.name
        self._part = part.hexdigest()  # which frozen part it is, whatever the images
        self._runner: OnnxNetwork | None = None

    def rows(
        self, positions: Positions, reader: ImageReader, *, mirror: bool, count: Counting = uncounted
    ) -> tuple[NDArray[np.float32], Positions]:
        """Return the rows (images, …), filled at `positions`, and those of the positions that could not be read."""
        store = self._store("mirrored" if mirror else "plain")
        with store.locked():
            done = store.done(positions)
            missing = positions[~done[positions]]
            if len(missing):
                what = "computing features of mirrored images" if mirror else "computing features"
                with count(what, len(missing)) as progress:
                    self._fill(store, done, missing, reader, mirror, progress)
        return store.read(), positions[~done[positions]]

    def complete_rows(self) -> tuple[NDArray[np.float32], Positions]:
        """Return the rows (images, …) as they are by now, and the positions whose rows are written; compute none."""
        store = self._store("plain")
        written = np.flatnonzero(store.done(np.arange(self._n_images)))
        return store.read() if len(written) else np.empty((0,), np.float32), written

    def _store(self, name: str) -> "_Rows":
        with torch.inference_mode():
            shape = tuple(self._network.lower(self._network.backbone.example().to(self._network.device)).shape[1:])
        return _Rows(self._folder / name, (self._n_images, *shape))

    def _fill(
        self,
        store: "_Rows",
        done: NDArray[np.bool_],
        missing: Positions,
        reader: ImageReader,
        mirror: bool,
        progress: Callable[[int], None],
    ) -> None:
        marked = time.monotonic()
        fresh: list[Positions] = []
        batches = [missing[n : n + _BATCH] for n in range(0, len(missing), _BATCH)]
        with store.writing() as write:
            for number, batch in enumerate(reader.batches(batches), start=1):
                pixels = np.ascontiguousarray(batch.pixels[:, :, ::-1]) if mirror else batch.pixels
                if len(pixels):
                    write(batch.positions, self._lower(pixels))
                fresh.append(batch.positions)
                progress(len(batches[number - 1]))
                if time.monotonic() - marked > _SECONDS or number == len(batches):
                    done[np.concatenate(fresh)] = True
                    store.mark(np.concatenate(fresh))
                    fresh, marked = [], time.monotonic()

    def _lower(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Run the frozen part: by ONNX Runtime on a CPU, where it is two to three times as fast as torch."""
        if self._network.device.type != "cpu":
            with torch.inference_mode():
                result: NDArray[np.float32] = (
                    self._network.lower(to_device(pixels, self._network.device)).float().cpu().numpy()
                )
            return result
        if self._runner is None:
            self._runner = OnnxNetwork(self._onnx())
        return self._runner.run(pixels)["activations"]

    def _onnx(self) -> bytes:
        """Return the frozen part in the ONNX format, which torch's exporter takes seconds to make."""
        content = _exported.get(self._part)
        if content is None:
            content = to_onnx(FrozenPart(self._network))
            _exported.clear()
            if len(content) <= _LARGEST_KEPT:
                _exported[self._part] = content
        return content


def _identity(network: HashNetwork) -> Iterator[bytes]:
    """Yield what tells one frozen part from another."""
    yield repr((type(network.backbone).__name__, network.backbone.preprocess)).encode()
    frozen = network.frozen()
    for tensor in frozen:
        yield tensor.detach().cpu().numpy().tobytes()
    yield str(len(frozen)).encode()


class _Rows:
    """Rows float32 (images, …) in a file, written in any order, and the checksums of those that are complete."""

    def __init__(self, folder: Path, shape: tuple[int, ...]) -> None:
        self._folder = folder
        self._shape = shape
        self._row_bytes = int(np.prod(shape[1:])) * 4
        self._file, self._marks = folder / "rows.bin", folder / "done.bin"
        self._key = hashlib.sha256(f"{folder.parent.name} {folder.name}".encode()).digest()  # what the rows are of
        self._sums: NDArray[np.uint64] = np.zeros(shape[0], np.uint64)

    def locked(self) -> AbstractContextManager[None]:
        """Let one process at a time fill it; others wait, and find it filled."""
        say = "waiting for another process that computes the same features"
        return locked(self._folder / ".lock", lambda: log.info(say))

    def done(self, positions: Positions) -> NDArray[np.bool_]:
        """Return which rows (images,) are complete, those at `positions` by their checksums; none if no file fits."""
        if self._marks.is_file() and self._file.is_file() and self._file.stat().st_size == self._size():
            content = self._marks.read_bytes()
            if len(content) == self._sums.nbytes:
                self._sums = np.frombuffer(content, np.uint64).copy()
        marked = positions[self._sums[positions] != 0]
        if len(marked):
            altered = marked[self._checksums(marked) != self._sums[marked]]
            if len(altered):
                log.warning("%s kept features in %s were altered: computed again", f"{len(altered):,}", self._folder)
                self._sums[altered] = 0
        done: NDArray[np.bool_] = self._sums != 0
        return done

    @contextmanager
    def writing(self) -> Iterator[Callable[[Positions, NDArray[np.float32]], None]]:
        """Yield the function that writes rows (n, …) to their positions (n,)."""
        handle = os.open(self._file, os.O_CREAT | os.O_RDWR, 0o666)

        def write(positions: Positions, rows: NDArray[np.float32]) -> None:
            for position, row in zip(positions.tolist(), rows, strict=True):
                os.pwrite(handle, row.tobytes(), position * self._row_bytes)

        try:
            os.ftruncate(handle, self._size())  # rows that were never written take no space on the disk
            yield write
        except OSError as error:
            raise DataError(f"the features cannot be kept in {self._folder}: {error.strerror}") from error
        finally:
            os.close(handle)

    def mark(self, positions: Positions) -> None:
        """Mark the rows at these positions as complete, once they are on the disk."""
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
        self._sums[positions] = self._checksums(positions)
        with written_whole(self._marks) as temporary:
            temporary.write_bytes(self._sums.tobytes())

    def read(self) -> NDArray[np.float32]:
        """Return the rows; only what is used of them takes memory."""
        return np.memmap(self._file, np.float32, "r", shape=self._shape)

    def _checksums(self, positions: Positions) -> NDArray[np.uint64]:
        """Return the checksums of the rows at these positions, which depend on position, data set and frozen part."""
        rows = self.read().reshape(self._shape[0], -1).view(np.uint8)
        sums = np.empty(len(positions), np.uint64)
        for n, position in enumerate(positions.tolist()):
            digest = hashlib.blake2b(
                rows[position].data, digest_size=8, key=self._key, salt=position.to_bytes(16, "little")
            )
            sums[n] = int.from_bytes(digest.digest(), "little") or 1
        return sums

    def _size(self) -> int:
        return self._shape[0] * self._row_bytes
