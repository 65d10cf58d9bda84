"""What goes into the trained part of a network: activations of the frozen part, kept on disk or computed on the way.

A frozen part gives an image the same activations in every epoch and every run, so they are computed once. They are kept
below `cache_folder()`, one folder for each data set, frozen part and mirroring:

    rows.bin    float32 (images, …), a row for each image; those that were never asked for take no space
    done.bin    eight bytes for each image: a checksum of its row, or zeros where it is not whole yet

Rows are on the disk before their checksums are, so a crash loses at most the rows of the last few seconds. A row that
does not fit its checksum is computed again.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.datasets import Dataset
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import DataError, InputError
from dmuh.files import locked, written_whole
from dmuh.images import Augment, ImageReader, Reading
from dmuh.machine import cache_folder
from dmuh.network import Doubt, HashNetwork, outputs_and_uncertainty, to_device
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions

log = logging.getLogger(__name__)

CACHED: tuple[Augment, ...] = ("none", "flip")  # augmentations that kept activations can give
WHOLE = (0, 1)
_BATCH = 64
_MAPPED = 1024
_SECONDS = 5.0  # between two times that rows are marked as done


@dataclass(frozen=True)
class InputBatch:
    """Activations (n, …) of the images at `positions` (n,): those that could be read."""

    positions: Positions
    activations: Tensor


def share(n: int, part: tuple[int, int]) -> slice:
    """Return where part k of k₀ of n things stands, for part = (k, k₀); parts differ in size by one at most."""
    own, parts = part
    return slice(n * own // parts, n * (own + 1) // parts)


class ImageInputs:
    """Activations computed from the images as they are asked for."""

    def __init__(self, network: HashNetwork, reader: ImageReader) -> None:
        self._network = network
        self._reader = reader

    def batches(
        self,
        batches: Sequence[Positions],
        *,
        augment: Augment = "none",
        seed: tuple[int, ...] = (),
        part: tuple[int, int] = WHOLE,
    ) -> Iterator[InputBatch]:
        """Yield the activations of each batch of positions, or of a part of it, see `share`."""
        own = [batch[share(len(batch), part)] for batch in batches]
        for batch in self._reader.batches(own, augment=augment, seed=seed):
            yield InputBatch(batch.positions, self._network.lower(to_device(batch.pixels, self._network.device)))


class KeptInputs:
    """Activations that were computed before: of the images and, for augmentation, of the mirrored images."""

    def __init__(
        self,
        rows: NDArray[np.float32],
        mirrored: NDArray[np.float32] | None,
        device: torch.device,
        bad: Positions,
        of: Positions | None = None,
    ) -> None:
        self._rows = rows
        self._mirrored = mirrored
        self._device = device
        self._bad = bad  # images that could not be read
        self._of = of  # the images whose rows these are; of all images where none are given

    def batches(
        self,
        batches: Sequence[Positions],
        *,
        augment: Augment = "none",
        seed: tuple[int, ...] = (),
        part: tuple[int, int] = WHOLE,
    ) -> Iterator[InputBatch]:
        """Yield the activations of each batch of positions, or of a part of it, see `share`.

        To flip is to take those of the mirrored image. Which are flipped does not depend on the part.
        """
        rng = np.random.default_rng(seed)
        for asked in batches:
            positions = asked[~np.isin(asked, self._bad)] if len(self._bad) else asked
            chances = rng.random(len(positions)) if augment == "flip" else np.empty(len(positions))
            own = share(len(positions), part)
            positions, chances = positions[own], chances[own]
            where = positions if self._of is None else np.searchsorted(self._of, positions)
            rows = self._rows[where]
            if augment == "flip":
                assert self._mirrored is not None
                flip = chances < 0.5
                rows[flip] = self._mirrored[where[flip]]
            yield InputBatch(positions, to_device(rows, self._device))

    @torch.inference_mode()
    def mapped(self, change: Callable[[Tensor], Tensor], positions: Positions) -> "KeptInputs":
        """Return the inputs of the images at `positions`, in rising order, each changed once and for all."""
        own = positions[~np.isin(positions, self._bad)]
        batches = [own[n : n + _MAPPED] for n in range(0, len(own), _MAPPED)]

        def changed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
            parts = [change(to_device(rows[batch], self._device)).float().cpu().numpy() for batch in batches]
            return np.concatenate(parts)

        assert self._of is None, "inputs are mapped once"
        mirrored = None if self._mirrored is None else changed(self._mirrored)
        return KeptInputs(changed(self._rows), mirrored, self._device, self._bad, own)


Inputs = ImageInputs | KeptInputs


@contextmanager
def open_inputs(
    network: HashNetwork,
    data: Dataset,
    positions: Positions,
    *,
    keep: bool,
    mirrored: Positions,
    reading: Reading,
) -> Iterator[Inputs]:
    """Give the way to the activations of the images at `positions`.

    With `keep` they come from the cache, where those that are missing are computed first, and so are those of the
    mirrored images at `mirrored`. A data set of feature vectors is its own cache.
    """
    if data.vectors is not None:
        if network.backbone.n_features != data.vectors.shape[1]:
            raise InputError(
                f"the network takes vectors of {network.backbone.n_features} numbers, the data have "
                f"{data.vectors.shape[1]}"
            )
        yield KeptInputs(data.vectors, None, network.device, positions[:0])
        return
    with ImageReader(data.images, network.backbone.preprocess, reading) as reader:
        if not keep:
            yield ImageInputs(network, reader)
            return
        cache = ActivationCache(network, data)
        rows, unread = cache.rows(positions, reader, mirror=False, count=reading.progress)
        other, also = None, positions[:0]
        if len(mirrored):
            other, also = cache.rows(mirrored, reader, mirror=True, count=reading.progress)
        yield KeptInputs(rows, other, network.device, np.union1d(unread, also))


class ActivationCache:
    """The kept activations of one data set below one frozen part."""

    def __init__(self, network: HashNetwork, data: Dataset) -> None:
        self._network = network
        self._n_images = len(data)
        digest = hashlib.sha256(data.content_key().encode())
        digest.update(repr((type(network.backbone).__name__, network.backbone.preprocess)).encode())
        for tensor in network.frozen():
            digest.update(tensor.detach().cpu().numpy().tobytes())
        digest.update(str(len(network.frozen())).encode())
        self._folder = cache_folder() / "activations" / digest.hexdigest()[:24]
        self._runner: OnnxNetwork | None = None

    def rows(
        self, positions: Positions, reader: ImageReader, *, mirror: bool, count: Counting = uncounted
    ) -> tuple[NDArray[np.float32], Positions]:
        """Return the rows of all images, whole at `positions`, and which of these could not be read."""
        with torch.inference_mode():
            shape = tuple(self._network.lower(self._network.backbone.example().to(self._network.device)).shape[1:])
        store = _Rows(self._folder / ("mirrored" if mirror else "plain"), (self._n_images, *shape))
        with store.locked():
            done = store.done(positions)
            missing = positions[~done[positions]]
            if len(missing):
                what = "computing features of mirrored images" if mirror else "computing features"
                with count(what, len(missing)) as progress:
                    self._fill(store, done, missing, reader, mirror, progress)
        return store.read(), positions[~done[positions]]

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
            self._runner = OnnxNetwork(to_onnx(FrozenPart(self._network)))
        return self._runner.run(pixels)["activations"]


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs float32 (n, n_bits) of the images at `positions` (n,), and their uncertainty where there is one."""

    positions: Positions
    outputs: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None


@torch.inference_mode()
def compute_outputs(
    network: HashNetwork,
    doubt: Doubt | None,
    inputs: Inputs,
    positions: Positions,
    *,
    batch_size: int = 128,
) -> Outputs:
    """Run the images at `positions` through the network and what doubts it."""
    batches = [positions[i : i + batch_size] for i in range(0, len(positions), batch_size)]
    kept, outputs, unsure = [positions[:0]], [], []
    for batch in inputs.batches(batches):
        if len(batch.positions):
            h, u = outputs_and_uncertainty(network, doubt, batch.activations)
            kept.append(batch.positions)
            outputs.append(h.float().cpu().numpy())
            if u is not None:
                unsure.append(u.float().cpu().numpy())
    empty = np.empty((0, network.n_bits), np.float32)
    return Outputs(
        np.concatenate(kept),
        np.concatenate([empty, *outputs]),
        None if doubt is None else np.concatenate([empty, *unsure]),
    )


class _Rows:
    """Rows float32 (images, …) in a file, written here and there, and the checksums of those that are whole."""

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
        """Return which rows (images,) are whole, those at `positions` by their checksums; none if no file fits."""
        if self._marks.is_file() and self._file.is_file() and self._file.stat().st_size == self._size():
            content = self._marks.read_bytes()
            if len(content) == self._sums.nbytes:
                self._sums = np.frombuffer(content, np.uint64).copy()
        kept = positions[self._sums[positions] != 0]
        if len(kept):
            altered = kept[self._checksums(kept) != self._sums[kept]]
            if len(altered):
                log.warning("%s kept features in %s were altered: computed again", f"{len(altered):,}", self._folder)
                self._sums[altered] = 0
        done: NDArray[np.bool_] = self._sums != 0
        return done

    @contextmanager
    def writing(self) -> Iterator[Callable[[Positions, NDArray[np.float32]], None]]:
        """Yield what writes rows to their places."""
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
        """Write down that the rows at these positions are whole, after the rows themselves."""
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
        self._sums[positions] = self._checksums(positions)
        with written_whole(self._marks) as temporary:
            temporary.write_bytes(self._sums.tobytes())

    def read(self) -> NDArray[np.float32]:
        """Return the rows; only what is used of them takes memory."""
        return np.memmap(self._file, np.float32, "r", shape=self._shape)

    def _checksums(self, positions: Positions) -> NDArray[np.uint64]:
        """Return the checksums of the rows at these positions; each depends on the row's place and what it is of."""
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
