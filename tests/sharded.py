"""A hasher that is computed in no time, and encoding by it in shards; as a program it is killed by tests.

`python sharded.py FOLDER SHARDS IMAGES SECONDS` encodes so many images, waiting so long before each batch.
"""

import sys
import time
from pathlib import Path

import numpy as np

from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.images import Preprocess, Reading
from dmuh.shards import Manifest, Shards, encode_shard
from dmuh.shards.sources import DatasetSource, ImageSource
from graded import calibration_card

N_BITS = 20


class Projection:
    """Outputs are pixels times a fixed matrix."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.shape = (8, 8, 3)
        self.outputs = ["outputs", "uncertainty"]
        self.seconds = seconds
        self.matrix = np.random.default_rng(0).integers(-9, 10, (8 * 8 * 3, N_BITS)).astype(np.float32)

    def run(self, rows):
        time.sleep(self.seconds)
        outputs = (rows.reshape(len(rows), -1).astype(np.float32) - 127) @ self.matrix
        return {"outputs": outputs, "uncertainty": np.abs(outputs) / 1e5}


def projecting_hasher(seconds: float = 0.0) -> Hasher:
    about = {"n_bits": N_BITS, "calibration": calibration_card(N_BITS)}
    return Hasher(Projection(seconds), Preprocess(8, 8), about, "d1e5")


def noisy_images(n: int) -> Dataset:
    pixels = np.random.default_rng(1).integers(0, 256, (n, 8, 8, 3), np.uint8)
    return Dataset("images", pixels, np.zeros((n, 0), np.uint8), ())


def begun(folder: Path, source: ImageSource, shards: int, sure: int = 1) -> Shards:
    made = Shards(folder)
    worth = projecting_hasher().calibration.grades[sure].worth.tolist() if sure else None
    made.begin(Manifest("model", "d1e5", N_BITS, source.digest(), shards, worth))
    return made


if __name__ == "__main__":
    path, total, count, pause = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    images = DatasetSource(noisy_images(count))
    target = begun(path, images, total)
    for number in range(total):
        encode_shard(projecting_hasher(pause), images, target, number, Reading(0))
