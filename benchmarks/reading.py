"""Reading photographs into batches: in the calling thread, by threads and by processes.

    python benchmarks/reading.py [N_IMAGES] [WORKERS] [ROUNDS]

The photographs are made: JPEG files of 500 × 375 pixels with detail at all scales, read to 224 × 224. A reader takes
processes for files and threads for what is in memory; the threads are given the same files as bytes that each reads for
itself. The busy column is the rate where every batch is followed by a step of 0.1 s that holds the interpreter's lock.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from measuring import report, seconds, table
from PIL import Image

from dmuh.images import Augment, ImageReader, Images, Preprocess, Reading

WIDTH, HEIGHT = 500, 375
PREPROCESS = Preprocess(size=224, resize=256)
BATCH = 64
STEP = 0.1
COLOURED: Augment = "resized-crop+flip+colour"


class Contents(Sequence[bytes]):
    """The contents of files, read when they are asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> bytes:  # type: ignore[override]
        return self.paths[position].read_bytes()


def make_photographs(folder: Path, n: int) -> list[Path]:
    """Write n images with detail at all scales; they take about as many bytes as photographs do."""
    rng = np.random.default_rng(0)
    paths = [folder / f"{number:05}.jpg" for number in range(n)]
    for path in paths:
        layers = np.zeros((HEIGHT, WIDTH, 3))
        for side, strength in ((6, 60), (25, 40), (100, 25), (375, 12)):
            layer = rng.normal(128, strength, (side, side, 3)).clip(0, 255).astype(np.uint8)
            layers += np.asarray(Image.fromarray(layer).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), float) - 128
        Image.fromarray((layers + 128).clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def hold_the_lock(duration: float) -> None:
    """Compute in Python for a while, so that no other thread can."""
    until = time.perf_counter() + duration
    while time.perf_counter() < until:
        sum(range(100))


def passes(reader: ImageReader, n: int) -> dict[str, Callable[[], None]]:
    """Return what is timed of a reader of n images, by name: each is one pass over them."""
    batches = [np.arange(begin, min(begin + BATCH, n)) for begin in range(0, n, BATCH)]

    def read(augment: Augment, step: float) -> None:
        for _ in reader.batches(batches, augment=augment, seed=(0,)):
            hold_the_lock(step)

    return {
        "images/s": lambda: read("none", 0.0),
        COLOURED: lambda: read(COLOURED, 0.0),
        "busy": lambda: read("none", STEP),
    }


def main(n: int = 1_000, workers: int = 2, rounds: int = 3) -> None:
    """Measure and print the table; the ways of reading take turns, so that other work hits them alike."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        paths = make_photographs(Path(folder), n)
        ways: dict[str, tuple[Images, int]] = {
            "calling thread": (paths, 0),
            f"{workers} threads": (Contents(paths), workers),
            f"{workers} processes": (paths, workers),
        }
        rows, timed = [], []
        for name, (images, size) in ways.items():
            reader = opened.enter_context(ImageReader(images, PREPROCESS, Reading(size)))
            first = seconds(lambda: next(reader.batches([np.arange(BATCH)])), 1)  # noqa: B023
            what = f"{n:,} JPEG files of {WIDTH} × {HEIGHT} to 224 px"
            rows.append({what: name, f"first {BATCH}": f"{first:.2f} s"})  # with the start of the workers
            timed.append(passes(reader, n))
        for column in timed[0]:
            turns = [[seconds(way[column], 1) for way in timed] for _ in range(rounds)]
            best = [min(times) for times in zip(*turns, strict=True)]
            for row, took in zip(rows, best, strict=True):
                row[column] = f"{n / took:,.0f}"
            print(rows, file=sys.stderr, flush=True)
    report("reading", table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
