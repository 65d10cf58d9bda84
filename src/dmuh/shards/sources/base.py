"""What every source of images has in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dmuh.images import Images

BATCH = 4096  # images that are encoded together


@dataclass(frozen=True)
class ImageBatch:
    """Some images that are encoded together, in the order of their ids, with names and labels of each."""

    ids: NDArray[np.int64]
    names: list[str]
    images: Images
    labels: list[list[str]]


class ImageSource(Protocol):
    """Images that are cut into shards: any process finds those of its shard without asking others."""

    def digest(self) -> str:
        """Return a digest, which changes when the source does."""

    def batches(self, shard: int, shards: int) -> Iterator[ImageBatch]:
        """Yield the images of one shard, counted from 0; ids rise from shard to shard."""
