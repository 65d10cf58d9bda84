"""Batches of images, read ahead of their use."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import DataError, ImageError
from dmuh.images.augment import Augment, Preprocess
from dmuh.images.pixels import ImageLike, Images, Pixels, name_of, read_pixels
from dmuh.images.reading import Reading
from dmuh.machine import cores
from dmuh.machine.workers import process_pool, result_of, uninterrupted

_AHEAD = 2  # batches read ahead
_FEW = 500  # images that are read sooner than a worker has started
_MOST_WORKERS = 8
_PART = 16  # images per task: fewer cost more in passing them on, more keep the first batch waiting for one worker


@dataclass(frozen=True)
class Batch:
    """Pixels uint8 (n, size, size, 3) of the images at `positions` (n,): those that could be read."""

    positions: NDArray[np.int64]
    pixels: Pixels


@dataclass(frozen=True)
class _Part:
    """What one task read: pixels (n, size, size, 3) of the images at `positions`, and why others failed, by name."""

    positions: list[int]
    pixels: Pixels
    reasons: dict[str, str]


class ImageReader:
    """Reads batches of images ahead of their use; a context manager that keeps its workers from epoch to epoch.

    `reading` says how. Files are read by worker processes, which share no interpreter lock with the training; images in
    memory by threads, which need not be sent them.
    """

    def __init__(self, images: Images, preprocess: Preprocess, reading: Reading | None = None) -> None:
        self._images = images
        self._preprocess = preprocess
        self._reading = reading or Reading()
        workers = self._reading.workers
        self._workers = _enough_workers(len(images)) if workers is None else workers
        self._in_processes = False
        self._pool: Executor | None = None

    def __enter__(self) -> "ImageReader":
        if self._workers:
            array = isinstance(self._images, np.ndarray)
            self._in_processes = not array and all(isinstance(image, str | Path) for image in self._images)
            self._pool = process_pool(self._workers) if self._in_processes else ThreadPoolExecutor(self._workers)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def batches(
        self, batches: Iterable[NDArray[np.int64]], *, augment: Augment = "none", seed: tuple[int, ...] = ()
    ) -> Iterator[Batch]:
        """Yield the pixels of each batch of positions, in their order.

        An image's augmentation depends on `seed` and its position only, never on the batch or the worker.
        """
        read = partial(_read, preprocess=self._preprocess, augment=augment, seed=seed)
        if self._workers == 0:
            for positions in batches:
                yield self._batch(positions, (read(*task) for task in self._tasks(positions)))
            return
        pool = self._pool
        if pool is None:
            raise RuntimeError("an ImageReader with workers has to be entered before it reads")
        waiting: deque[tuple[NDArray[np.int64], list[Future[_Part]]]] = deque()
        try:
            for positions in batches:
                tasks = list(self._tasks(positions))
                with uninterrupted():
                    waiting.append((positions, [pool.submit(read, *task) for task in tasks]))
                if len(waiting) > _AHEAD:
                    yield self._first(waiting)
            while waiting:
                yield self._first(waiting)
        except BrokenProcessPool as error:
            raise DataError(
                "a process that reads images ended before its time, perhaps for lack of memory: "
                f"lower workers (now {self._workers}; 0 reads in the main process)"
            ) from error
        finally:  # the reader may go on with other batches: nothing that has not begun is read for these
            with uninterrupted():
                for future in (future for _, futures in waiting for future in futures):
                    future.cancel()

    def _tasks(self, positions: NDArray[np.int64]) -> Iterator[tuple[list[int], Iterable[ImageLike]]]:
        """Yield a batch in parts, so that all workers read the first one: positions, and the images there.

        A process is sent the paths that it is to read; of all paths, of which there may be millions, it needs no copy.
        """
        share = math.ceil(len(positions) / max(self._workers, 1))
        size = max(1, min(_PART, share))
        for begin in range(0, len(positions), size):
            part: list[int] = positions[begin : begin + size].tolist()
            if self._in_processes:
                yield part, [str(self._images[position]) for position in part]
            else:
                yield part, map(self._images.__getitem__, part)  # taken in the thread: the sequence may be lazy

    def _first(self, waiting: deque[tuple[NDArray[np.int64], list[Future[_Part]]]]) -> Batch:
        """Wait for the first batch and take it from those that are waited for."""
        positions, futures = waiting[0]
        batch = self._batch(positions, map(result_of, futures))
        waiting.popleft()
        return batch

    def _batch(self, positions: NDArray[np.int64], parts: Iterable[_Part]) -> Batch:
        pixels = np.empty((len(positions), self._preprocess.size, self._preprocess.size, 3), np.uint8)
        read: list[int] = []
        for part in parts:
            for name, reason in part.reasons.items():
                if self._reading.on_bad_image == "fail":
                    raise ImageError(f"{reason} (--on-bad-image skip leaves such images out)")
                self._reading.bad.reasons.setdefault(name, reason)
            pixels[len(read) : len(read) + len(part.positions)] = part.pixels
            read += part.positions
        return Batch(np.asarray(read, np.int64), pixels[: len(read)])


def _enough_workers(n_images: int) -> int:
    """Return how many workers are worth their start."""
    return 0 if n_images < _FEW else min(cores(), _MOST_WORKERS)


def _read(
    positions: list[int], images: Iterable[ImageLike], preprocess: Preprocess, augment: Augment, seed: tuple[int, ...]
) -> _Part:
    """Read the images at these positions; this runs in the workers."""
    pixels = np.empty((len(positions), preprocess.size, preprocess.size, 3), np.uint8)
    readable: list[int] = []
    reasons: dict[str, str] = {}
    for position, image in zip(positions, images, strict=True):
        rng = np.random.default_rng((*seed, position)) if augment != "none" else None
        try:
            pixels[len(readable)] = read_pixels(image, preprocess, augment=augment, rng=rng)
            readable.append(position)
        except ImageError as error:
            name = name_of(image, position)
            reasons[name] = f"{name}: {error}"
    return _Part(readable, pixels[: len(readable)], reasons)
