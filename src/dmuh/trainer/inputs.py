"""What the trained part of a network takes in: activations of its frozen part, cached or computed from the images."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.datasets import Dataset
from dmuh.errors import InputError
from dmuh.images import Augment, ImageReader, Reading
from dmuh.network import HashNetwork, to_device
from dmuh.protocols import Positions
from dmuh.trainer.activation_cache import ActivationCache

CACHED: tuple[Augment, ...] = ("none", "flip")  # augmentations that cached activations can give
WHOLE = (0, 1)
_MAPPED = 1024  # rows that are changed together


@dataclass(frozen=True)
class InputBatch:
    """Activations (n, …) of the images at `positions` (n,): those that could be read."""

    positions: Positions
    activations: Tensor


def part_slice(n: int, part: tuple[int, int]) -> slice:
    """Return the slice of n rows that process k of k₀ works on, for part = (k, k₀); sizes differ by one at most."""
    number, parts = part
    return slice(n * number // parts, n * (number + 1) // parts)


class ImageInputs:
    """Activations computed from the images each time that they are needed."""

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
        """Yield the activations of each batch of positions, or of a part of each, see `part_slice`."""
        parts = [batch[part_slice(len(batch), part)] for batch in batches]
        for batch in self._reader.batches(parts, augment=augment, seed=seed):
            yield InputBatch(batch.positions, self._network.lower(to_device(batch.pixels, self._network.device)))


class CachedInputs:
    """Activations that were computed before: of the images and, for augmentation, of the mirrored images."""

    def __init__(
        self,
        rows: NDArray[np.float32],
        mirrored: NDArray[np.float32] | None,
        device: torch.device,
        bad: Positions,
        of: Positions | None = None,
        name: str = "",
    ) -> None:
        self._rows = rows
        self._mirrored = mirrored
        self._device = device
        self._bad = bad  # images that could not be read
        self.name = name  # tells these rows from all others; empty where nobody gave one
        self._of = of  # the positions whose rows these are, rising; None where all images have a row

    def batches(
        self,
        batches: Sequence[Positions],
        *,
        augment: Augment = "none",
        seed: tuple[int, ...] = (),
        part: tuple[int, int] = WHOLE,
    ) -> Iterator[InputBatch]:
        """Yield the activations of each batch of positions, or of a part of each, see `part_slice`.

        To flip is to take the activations of the mirrored image. Which are flipped does not depend on the part.
        """
        rng = np.random.default_rng(seed)
        for batch in batches:
            positions = batch[~np.isin(batch, self._bad)] if len(self._bad) else batch
            chances = rng.random(len(positions)) if augment == "flip" else np.empty(len(positions))
            rows_of_part = part_slice(len(positions), part)
            positions, chances = positions[rows_of_part], chances[rows_of_part]
            where = positions if self._of is None else np.searchsorted(self._of, positions)
            rows = self._rows[where]
            if augment == "flip":
                assert self._mirrored is not None
                flip = chances < 0.5
                rows[flip] = self._mirrored[where[flip]]
            yield InputBatch(positions, to_device(rows, self._device))

    def __eq__(self, other: object) -> bool:
        """Whether these give the same rows for the same images."""
        if not isinstance(other, CachedInputs) or self._device != other._device:
            return False
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("_rows", "_mirrored", "_bad", "_of")]
        return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    @torch.inference_mode()
    def mapped(self, change: Callable[[Tensor], Tensor], positions: Positions | None = None) -> "CachedInputs":
        """Return the inputs of the images at `positions`, in rising order, after `change` was applied to each once.

        Without `positions` these are all images that have a row.
        """
        known = np.arange(len(self._rows)) if self._of is None else self._of
        wanted = known if positions is None else positions
        readable = wanted[~np.isin(wanted, self._bad)]
        where = readable if self._of is None else np.searchsorted(self._of, readable)
        batches = [where[n : n + _MAPPED] for n in range(0, len(where), _MAPPED)]

        def changed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
            parts = [change(to_device(rows[batch], self._device)).float().cpu().numpy() for batch in batches]
            return np.concatenate(parts)

        mirrored = None if self._mirrored is None else changed(self._mirrored)
        return CachedInputs(changed(self._rows), mirrored, self._device, self._bad, readable)


class Inputs(Protocol):
    """Anything that gives a network's activations batch by batch, as `ImageInputs` does."""

    def batches(
        self,
        batches: Sequence[Positions],
        *,
        augment: Augment = "none",
        seed: tuple[int, ...] = (),
        part: tuple[int, int] = WHOLE,
    ) -> Iterator[InputBatch]:
        """Yield the activations of each batch of positions, or of a part of each."""


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
    """Open the activations of the images at `positions`.

    With `keep` they come from the cache, where missing ones are computed first, also those of the mirrored images at
    `mirrored`. The vectors of a data set of feature vectors are taken as they are.
    """
    if data.vectors is not None:
        if network.backbone.n_features != data.vectors.shape[1]:
            raise InputError(
                f"the network takes vectors of {network.backbone.n_features} numbers, the data have "
                f"{data.vectors.shape[1]}"
            )
        yield CachedInputs(data.vectors, None, network.device, positions[:0])
        return
    with ImageReader(data.images, network.backbone.preprocess, reading) as reader:
        if not keep:
            yield ImageInputs(network, reader)
            return
        cache = ActivationCache(network, data)
        rows, bad_plain = cache.rows(positions, reader, mirror=False, count=reading.progress)
        mirrored_rows, bad_mirrored = None, positions[:0]
        if len(mirrored):
            mirrored_rows, bad_mirrored = cache.rows(mirrored, reader, mirror=True, count=reading.progress)
        bad = np.union1d(bad_plain, bad_mirrored)
        yield CachedInputs(rows, mirrored_rows, network.device, bad, name=cache.name)
