"""The first search after an install: from the prompt to the answer, in a fresh process.

    python benchmarks/first_search.py [N…]

Measured is `dmuh search INDEX IMAGE` with an exported network, over N codes of 32 bits (5,000 and 200,000). The peer is
the same search by the compiled kernels: compiled on demand where there is no machine code yet, loaded where `dmuh warm`
made it. dmuh answers such a small search by numpy. The shortest of three runs counts, but for the one that compiles.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import random_codes, report, seconds, table
from PIL import Image

from dmuh import Codes, Collection, Hasher, configure, load_dataset, train
from dmuh.collection import Item
from dmuh.encoder import export_run

SEARCH = "from dmuh.cli import main; main()"
BY_KERNELS = "from dmuh.index.kernel_use import only\nwith only(compiled=True): " + SEARCH


def prepared(folder: Path, sizes: list[int]) -> None:
    """Write a network, an image to search for, and an index of each size."""
    settings = configure({"epochs": 1, "bits": 32})
    digits = load_dataset(settings.data)
    run = train(settings, folder / "run", dataset=digits)
    export_run(run.path, folder / "model")
    Image.fromarray(np.asarray(digits.images[0])).save(folder / "query.png")
    digest, rng = Hasher.load(folder / "model").digest, np.random.default_rng(0)
    for n in sizes:
        bits, levels = (random_codes(n, 32, rng).bits for _ in range(2))
        worth, contents = np.array([[0.3, 0.9]] * 32, np.float32), rng.integers(-(2**63), 2**63 - 1, n)
        codes = Codes(bits, 32, levels=levels[:, None], worth=worth, contents=contents)
        paths = (f"photos/{row % 365:03}/IMG_{row:07}.jpg" for row in range(n))
        items = (Item(row, path, [f"label {row % 50}"], 0.25) for row, path in enumerate(paths))
        collection = Collection(folder / str(n))
        collection.write_items(codes, items, folder / "model", digest)
        collection.build_index()


def runner(folder: Path, program: str, kernels: Path, *arguments: object) -> Callable[[], None]:
    """Return what runs a program in a new process, with the machine code of the kernels in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return lambda: subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True) and None


def measured(folder: Path, sizes: list[int]) -> list[dict[str, str]]:
    """Time the first search and those after `dmuh warm`, for each size."""
    warm = folder / "warm"
    began = time.perf_counter()
    runner(folder, SEARCH, warm, "warm")()
    print(f"dmuh warm took {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    rows = []
    for n in sizes:
        arguments = "search", n, "query.png"
        for name, kernels, repeat in (("nothing compiled", folder / f"none {n}", 1), ("after dmuh warm", warm, 3)):
            ours = seconds(runner(folder, SEARCH, kernels, *arguments), 3)
            peer = seconds(runner(folder, BY_KERNELS, kernels, *arguments), repeat)
            rows.append(
                {
                    "dmuh search, from the prompt": f"{n:,} codes, {name}",
                    "compiled kernels": f"{peer:.2f} s",
                    "dmuh": f"{ours:.2f} s",
                    "ratio": f"{peer / ours:.1f}×",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(*sizes: int) -> None:
    """Measure and print the table."""
    chosen = list(sizes) or [5_000, 200_000]
    with tempfile.TemporaryDirectory() as name:
        prepared(Path(name), chosen)
        report("first-search", table(measured(Path(name), chosen)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
