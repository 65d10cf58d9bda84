"""Training on 100,000 images: the time to the first step, and the memory over an epoch.

    python benchmarks/large_set.py [N_IMAGES [PHOTOS …]]

JPEGs are written to a temporary folder, one folder a class: of noise, or different, recoloured parts of photographs
in the folders PHOTOS. A small network trains on them for one epoch. The first step is told in seconds and in seconds of
processor time, of all processes: a busy machine adds to the former alone.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from measuring import memory_status, report, table
from PIL import Image

from dmuh import configure, train
from dmuh.images import find_images

N_CLASSES = 10


def write_images(root: Path, n: int, photos: Sequence[Path]) -> None:
    """Write n different JPEGs: of noise, 128 × 96 pixels, or parts of photographs, 320 × 240."""
    for k in range(N_CLASSES):
        (root / f"class{k}").mkdir()

    def write(number: int) -> None:
        rng = np.random.default_rng(number)
        if photos:
            image = part_of(photos[number % len(photos)], rng)
        else:
            pixels = rng.integers(0, 256, (12, 16, 3), np.uint8)
            image = Image.fromarray(pixels).resize((128, 96), Image.Resampling.BICUBIC)
        image.save(root / f"class{number % N_CLASSES}" / f"{number:06}.jpg", quality=85)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(n)))


def part_of(photo: Path, rng: np.random.Generator) -> Image.Image:
    """Return a part of a photograph, 60 to 95% of each side, each colour brighter or darker by up to a fifth."""
    with Image.open(photo) as opened:
        opened.draft("RGB", (320, 320))
        image = opened.convert("RGB")
    sides = np.array(image.size)
    own = np.maximum(1, (sides * rng.uniform(0.6, 0.95, 2)).astype(int))
    left, top = rng.integers(0, sides - own + 1)
    part = image.crop((left, top, left + own[0], top + own[1])).resize((320, 240))
    return part.point([min(255, int(level * gain)) for gain in rng.uniform(0.8, 1.2, 3) for level in range(256)])


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def main(n: int = 100_000, *folders: str) -> None:
    """Measure and print the table."""
    photos = [file for folder in folders for file in find_images(Path(folder))]
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        images.mkdir()
        write_images(images, n, photos)
        values = {"dataset": "folder", "data": str(images), "backbone": "smallconv", "image_size": 16, "epochs": 1}
        # nearly all of the images train; the few others are all that is encoded at the epoch's end
        config = configure({**values, "train": 0.98, "query": 0.01, "validation": 0.0, "batch_size": 128, "workers": 2})
        steps: list[tuple[float, float, int]] = []
        began, spent_before = time.perf_counter(), processor_seconds()

        def note(_: object) -> None:
            steps.append((time.perf_counter() - began, processor_seconds() - spent_before, memory_status("VmRSS")))

        train(config, Path(folder) / "run", progress=note)
        spent = time.perf_counter() - began
    memory = [kilobytes / 1024 for *_, kilobytes in steps]
    early, late = max(memory[: len(memory) // 5]), max(memory[-len(memory) // 5 :])
    report(
        "large-set",
        table([{
            "training images": f"{round(0.98 * n):,}",
            "images": "parts of photographs" if photos else "noise",
            "first step after": f"{steps[0][0]:.1f} s",
            "of processor time": f"{steps[0][1]:.1f} s",
            "memory, first fifth of the epoch": f"{early:.0f} MB",
            "last fifth": f"{late:.0f} MB",
            "epoch": f"{spent:.0f} s",
        }]),
    )  # fmt: skip


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]), *sys.argv[2:])
