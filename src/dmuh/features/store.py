"""FeatureStore: features by the path of their image, kept in parts.

part-000001.safetensors, …   features float32 (n, n_features) of n images and small grey pictures of them, with their
                             paths, stamps and sizes, and why some of them could not be read

A part is written whole or not at all and never changed, so that a process that was killed loses at most the part that
it was filling. Of two rows of the same path the one in the later part counts. Rows whose files are gone or were changed
are left out by whoever reads; when they are many, or the parts are, all that counts is written anew.
"""

import logging
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import FormatError
from dmuh.files import Array, clear_torn, load_arrays, locked, save_arrays
from dmuh.images import GREY_SIDE, FolderImage

log = logging.getLogger(__name__)

_KIND, _VERSION = "dmuh folder features", 2
_NAME = re.compile(r"part-(\d{6})\.safetensors")
_MOST_PARTS = 16  # beyond those that are full; with more of them, all are written anew
_FULL = 32_768  # rows of a part when all are written anew


@dataclass(frozen=True)
class Computed:
    """An image whose features are kept, and why it could not be read: empty if it could."""

    image: FolderImage
    reason: str


class Place(NamedTuple):
    """Where the features of an image are: the part and the row; and why there are none, empty if there are."""

    part: int
    row: int
    reason: str


class FeatureStore:
    """Features in a folder, given by one network; `load` them first, under the lock."""

    def __init__(self, folder: Path, network: str, n_features: int) -> None:
        self._folder = folder
        self._network = network
        self._width = n_features
        self._features: dict[int, Array] = {}  # of each part
        self._greys: dict[int, Array] = {}
        self._places: dict[FolderImage, Place] = {}
        self._n_rows = 0

    def locked(self) -> AbstractContextManager[None]:
        """Let one process at a time compute features; others wait, and find them computed."""
        say = "waiting for another process that computes features of the same folder"
        return locked(self._folder / ".lock", lambda: log.info(say))

    def load(self) -> None:
        """Read what is kept; a part that was altered, or is of another network, goes."""
        clear_torn(self._folder)
        latest: dict[Path, tuple[FolderImage, Place]] = {}
        for number, file in self._files():
            try:
                rows = self._read(number, file)
            except (FormatError, KeyError, ValueError) as error:
                log.warning("%s: its features are computed again", error)
                file.unlink()
                continue
            latest.update({image.path: (image, place) for image, place in rows})
        self._places = dict(latest.values())

    def find(self, image: FolderImage) -> Place | None:
        """Return where the features of an image are, as its file is now, or None."""
        return self._places.get(image)

    def add(self, computed: Sequence[Computed], features: NDArray[np.float32], greys: NDArray[np.uint8]) -> None:
        """Keep the features (n, n_features) and grey pictures (n, 32, 32) of n images, in a part of their own.

        Rows of unreadable images are zeros.
        """
        number = max([number for number, _ in self._files()], default=0) + 1
        names = [os.fsencode(entry.image.path) for entry in computed]
        arrays: dict[str, Array] = {
            "names": np.frombuffer(b"".join(names), np.uint8),
            "ends": np.cumsum([len(name) for name in names], dtype=np.int64),
            "stamps": np.array([entry.image.stamp for entry in computed], np.int64),
            "sizes": np.array([entry.image.size for entry in computed], np.int64),
            "features": features,
            "greys": greys,
        }
        reasons = {str(row): entry.reason for row, entry in enumerate(computed) if entry.reason}
        file = self._folder / f"part-{number:06}.safetensors"
        save_arrays(file, _KIND, _VERSION, arrays, {"network": self._network, "reasons": reasons})
        self._features[number], self._greys[number] = features, greys
        self._n_rows += len(computed)
        self._places |= {
            entry.image: Place(number, row, entry.reason) for row, entry in enumerate(computed)
        }  # fmt: skip

    def arrays(self, images: Sequence[FolderImage]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return the features (n, n_features) and the grey pictures (n, 32, 32) of images, all of which are kept."""
        places = [self._places[image] for image in images]
        parts, rows = (np.array([place[n] for place in places], np.int64) for n in (0, 1))
        features = np.empty((len(images), self._width), np.float32)
        greys = np.empty((len(images), GREY_SIDE, GREY_SIDE), np.uint8)
        for number in np.unique(parts).tolist():
            chosen = parts == number
            features[chosen] = self._features[number][rows[chosen]]
            greys[chosen] = self._greys[number][rows[chosen]]
        return features, greys

    def tidy(self, images: Sequence[FolderImage]) -> None:
        """Write the features of these images anew, and of no others, where much of what is kept does not count."""
        old = self._files()
        if len(old) <= _MOST_PARTS + len(images) // _FULL and self._n_rows <= 2 * len(images) + _FULL // 8:
            return
        for first in range(0, len(images), _FULL):
            part = images[first : first + _FULL]
            self.add([Computed(image, self._places[image].reason) for image in part], *self.arrays(part))
        for _, file in old:
            file.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        """Return the parts with their numbers, in their order."""
        named = ((_NAME.fullmatch(file.name), file) for file in self._folder.glob("part-*"))
        return sorted((int(match[1]), file) for match, file in named if match)

    def _read(self, number: int, file: Path) -> list[tuple[FolderImage, Place]]:
        kept = load_arrays(file, _KIND, _VERSION, memory_map=True)
        if kept.metadata["network"] != self._network:
            raise FormatError(f"{file} is of another network, {kept.metadata['network']}")
        features, greys, reasons = kept.arrays["features"], kept.arrays["greys"], kept.metadata["reasons"]
        if features.shape[1:] != (self._width,) or greys.shape != (len(features), GREY_SIDE, GREY_SIDE):
            raise FormatError(f"{file} has features of shape {features.shape}, pictures of shape {greys.shape}")
        names, ends = kept.arrays["names"].tobytes(), kept.arrays["ends"].tolist()
        about = zip(kept.arrays["stamps"].tolist(), kept.arrays["sizes"].tolist(), strict=True)
        self._features[number], self._greys[number] = features, greys
        self._n_rows += len(features)
        rows, begin = [], 0
        for row, (end, (stamp, size)) in enumerate(zip(ends, about, strict=True)):
            image = FolderImage(Path(os.fsdecode(names[begin:end])), stamp, size)
            rows.append((image, Place(number, row, reasons.get(str(row), ""))))
            begin = end
        return rows
