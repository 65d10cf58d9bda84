"""DatasetSource: the images of a data set."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dmuh.datasets import Dataset
from dmuh.shards.sources.base import BATCH, ImageBatch


@dataclass(frozen=True)
class DatasetSource:
    """The images of a data set; their ids are their positions there, their shards are of equal size."""

    data: Dataset

    def digest(self) -> str:
        """Return a digest of names and labels, and of the files, which changes when images are replaced."""
        files = self.data.image_files(np.arange(len(self.data)))
        return hashlib.sha256(f"{self.data.fingerprint()} {files.sizes} {files.sample}".encode()).hexdigest()

    def batches(self, shard: int, shards: int) -> Iterator[ImageBatch]:
        """Yield neighbouring images."""
        n = len(self.data)
        begin, end = n * shard // shards, n * (shard + 1) // shards
        for first in range(begin, end, BATCH):
            ids = np.arange(first, min(first + BATCH, end))
            names = [self.data.whole_path(position) for position in ids.tolist()]
            labels = [self.data.label_names(position) for position in ids.tolist()]
            yield ImageBatch(ids, names, self.data.take(ids), labels)
