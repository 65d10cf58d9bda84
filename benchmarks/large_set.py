"""Training on 100,000 images: the time to the first step, and the memory over an epoch.

    python benchmarks/large_set.py [N_IMAGES]

JPEGs of noise are written to a temporary folder, one folder a class; a small network trains on them for one epoch.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from measuring import memory_status, report, table
from PIL import Image

from dmuh import configure, train

N_CLASSES = 10


def write_images(root: Path, n: int) -> None:
    """Write n different JPEGs of 128 × 96 pixels."""
    for k in range(N_CLASSES):
        (root / f"class{k}").mkdir()

    def write(number: int) -> None:
        pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), np.uint8)
        image = Image.fromarray(pixels).resize((128, 96), Image.Resampling.BICUBIC)
        image.save(root / f"class{number % N_CLASSES}" / f"{number:06}.jpg", quality=85)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(n)))


def main(n: int = 100_000) -> None:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        images.mkdir()
        write_images(images, n)
        values = {"dataset": "folder", "data": str(images), "backbone": "smallconv", "image_size": 16, "epochs": 1}
        # nearly all of the images train; the few others are all that is encoded at the epoch's end
        config = configure({**values, "train": 0.98, "query": 0.01, "validation": 0.0, "batch_size": 128, "workers": 2})
        steps: list[tuple[float, int]] = []
        began = time.perf_counter()
        train(
            config, Path(folder) / "run",
            progress=lambda _: steps.append((time.perf_counter() - began, memory_status("VmRSS"))),
        )  # fmt: skip
        spent = time.perf_counter() - began
    memory = [kilobytes / 1024 for _, kilobytes in steps]
    early, late = max(memory[: len(memory) // 5]), max(memory[-len(memory) // 5 :])
    report(
        "large-set",
        table([{
            "training images": f"{round(0.98 * n):,}",
            "first step after": f"{steps[0][0]:.1f} s",
            "memory, first fifth of the epoch": f"{early:.0f} MB",
            "last fifth": f"{late:.0f} MB",
            "epoch": f"{spent:.0f} s",
        }]),
    )  # fmt: skip


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
