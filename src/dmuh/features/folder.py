"""The features of all images below a folder, as it is now."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import DataError, ImageError
from dmuh.features.network import FeatureNetwork, imagenet_network
from dmuh.features.store import Computed, FeatureStore
from dmuh.images import GREY_SIDE, SUFFIXES, BadImages, FolderImage, ImageReader, Reading, folder_images, small_greys

_BATCH = 64
_PART = 512  # images that are kept together: what an interruption costs at most


@dataclass(frozen=True, eq=False)
class FolderFeatures:
    """The images below a folder that can be read, ordered by path, and their features.

    root         the folder
    paths        n paths below it; names need not be UTF-8
    activations  float32 (n, n_features) as the network gave them
    greys        uint8 (n, 32, 32): small grey pictures of the images
    stamps       int64 (n,): when each file was changed, in nanoseconds
    sizes        int64 (n,): its bytes
    """

    root: Path
    paths: list[Path]
    activations: NDArray[np.float32]
    greys: NDArray[np.uint8]
    stamps: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The features with length 1, float32 (n, n_features): their products are cosines."""
        return unit_vectors(self.activations)


def unit_vectors(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows (n, m) with length 1 each; a row of zeros stays one."""
    units: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return units


def folder_features(
    folder: Path,
    *,
    keep_in: Path | None = None,
    reading: Reading | None = None,
    network: FeatureNetwork | None = None,
    images: Sequence[FolderImage] | None = None,
    wanted: Sequence[FolderImage] | None = None,
) -> FolderFeatures:
    """Return the features of all images below a folder; only those of new and changed files are computed.

    keep_in  the folder in which `features` keeps them; by default .dmuh inside the folder
    reading  how images are read, with which bar; by default unreadable ones are skipped. Those are noted in its `bad`,
             also where an earlier call found out, and are tried again once their file was changed.
    network  what computes them, EfficientNet-Lite0 unless another is given
    images   what `folder_images` found in the folder, where that was asked already
    wanted   those of the images whose features are asked for, unless all are
    """
    how = reading or Reading(on_bad_image="skip")
    images = folder_images(folder) if images is None else images
    if not images:
        raise DataError(f"no images below {folder}: looked for {', '.join(SUFFIXES)}")
    wanted = images if wanted is None else wanted
    network = network or imagenet_network()
    store = FeatureStore((keep_in or folder / ".dmuh") / "features", network.name, network.n_features)
    try:
        with store.locked():
            store.load()
            _compute(store, folder, [image for image in wanted if store.find(image) is None], network, how)
            store.tidy([image for image in images if store.find(image) is not None])
    except OSError as error:
        raise DataError(f"the features cannot be kept in {error.filename}: {error.strerror}") from error
    readable = _without_bad(store, folder, [image for image in wanted if store.find(image) is not None], how)
    if not readable and wanted is images:
        first = next(iter(how.bad.reasons.values()), "")
        raise DataError(f"none of the {len(images):,} images below {folder} can be read; {first}")
    numbers = np.array([(image.stamp, image.size) for image in readable], np.int64).reshape(-1, 2)
    return FolderFeatures(
        folder, [image.path for image in readable], *store.arrays(readable), numbers[:, 0], numbers[:, 1]
    )


def _compute(
    store: FeatureStore, folder: Path, missing: Sequence[FolderImage], network: FeatureNetwork, reading: Reading
) -> None:
    """Compute the features of these images and keep them, part by part."""
    if not missing:
        return
    own = replace(reading, on_bad_image="skip", bad=BadImages())
    paths = [str(folder / image.path) for image in missing]
    parts = [range(n, min(n + _PART, len(missing))) for n in range(0, len(missing), _PART)]
    batches = [np.array(part[n : n + _BATCH]) for part in parts for n in range(0, len(part), _BATCH)]
    with reading.progress("computing features", len(missing)) as advance, _reader(paths, network, own) as reader:
        read = reader.batches(batches)
        for part in parts:
            features = np.zeros((len(part), network.n_features), np.float32)
            greys = np.zeros((len(part), GREY_SIDE, GREY_SIDE), np.uint8)
            for first in range(0, len(part), _BATCH):
                batch = next(read)
                if len(batch.positions):
                    rows = batch.positions - part[0]
                    features[rows] = network.runner.run(batch.pixels)["activations"]
                    greys[rows] = small_greys(batch.pixels)
                advance(len(part[first : first + _BATCH]))
            reasons = {n: own.bad.reasons.get(paths[n], "").removeprefix(f"{paths[n]}: ") for n in part}
            # one that may not be read, or is gone, is tried again: its file need not change for that
            kept = [n for n in part if not reasons[n] or os.access(paths[n], os.R_OK)]
            reading.bad.reasons.update({paths[n]: own.bad.reasons[paths[n]] for n in set(part) - set(kept)})
            rows = np.array(kept, int) - part[0]
            store.add([Computed(missing[n], reasons[n]) for n in kept], features[rows], greys[rows])


def _reader(paths: list[str], network: FeatureNetwork, reading: Reading) -> ImageReader:
    _ = network.runner  # before there are processes to wait for it
    return ImageReader(paths, network.preprocess, reading)


def _without_bad(
    store: FeatureStore, folder: Path, images: Sequence[FolderImage], reading: Reading
) -> list[FolderImage]:
    """Return the images that could be read; the others are noted, or are an error, as `reading` says."""
    places = [(image, store.find(image)) for image in images]
    reasons = {image: place.reason for image, place in places if place is not None and place.reason}
    for image, reason in reasons.items():
        name = str(folder / image.path)
        reading.bad.reasons[name] = f"{name}: {reason}"
    if len(reading.bad) and reading.on_bad_image == "fail":
        raise ImageError(next(iter(reading.bad.reasons.values())))
    return [image for image in images if image not in reasons]
