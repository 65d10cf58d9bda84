"""Encoding in shards by processes that are killed at random: the codes are those of one run that nobody disturbs.

    python benchmarks/killed.py [N] [SHARDS]

N PNG files are drawn, a network of the backbone smallconv is trained for a moment, and `dmuh encode --shards` runs in a
process that gets SIGKILL again and again, a random time after it began a shard, until it comes to its end. Its shards,
merged, are compared bit by bit with `dmuh encode` in one piece. Rates are of the undisturbed run.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import report, table
from PIL import Image

import dmuh
from dmuh.collection import Collection
from dmuh.shards import Shards

DMUH = [sys.executable, "-m", "dmuh.cli"]


def draw(folder: Path, n: int) -> None:
    """Write n images of 28 pixels, a thousand a folder: noise on a grey that differs."""
    rng = np.random.default_rng(0)
    for number in range(n):
        place = folder / f"{number // 1000:04}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = (rng.integers(0, 200) + rng.integers(0, 56, (28, 28), np.uint8)).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number:07}.png", compress_level=1)


def killed_until_done(command: list[str], shards: Shards, most: float) -> tuple[int, int]:
    """Run a command that is killed up to `most` seconds after it began a shard, until it comes to its end.

    Returns how often it was killed, and how many shards that left torn.
    """
    rng, kills = np.random.default_rng(0), 0
    while True:
        torn = set(shards.path.glob(".shard-*"))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and set(shards.path.glob(".shard-*")) <= torn:
            time.sleep(0.01)
        try:
            if process.wait(timeout=float(rng.uniform(0, most))) != 0:
                sys.exit("the command failed")
            return kills, len(torn)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that read its images
            process.wait()
            kills += 1


def main(n: int = 100_000, n_shards: int = 8) -> None:
    """Encode both ways, compare, and print what was seen."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        draw(root / "images", n)
        dmuh.train(dmuh.configure({"dataset": "mnist5k", "epochs": 1, "train": 50, "bits": 64}), root / "run")
        began = time.perf_counter()
        subprocess.run([*DMUH, "encode", root / "run", root / "images", "--out", root / "whole"], check=True)
        seconds = time.perf_counter() - began
        shards = Shards(root / "shards")
        options = ["--shards", str(n_shards), "--out", str(shards.path)]
        command = [*DMUH, "encode", str(root / "run"), str(root / "images"), *options]
        kills, torn = killed_until_done(command, shards, 4 * seconds / n_shards)
        merged, whole = shards.merge(), Collection(root / "whole").load_codes()
        assert merged.sure == 1
        same = {"ids": np.array_equal(merged.ids, np.arange(n)), "bits, levels and contents": merged == whole}
        size = sum(shards.file(shard, n_shards).stat().st_size for shard in range(n_shards))
    if not all(same.values()):
        sys.exit(f"the codes differ: {same}")
    row = {
        f"{n:,} images, {n_shards} shards": "equal to one run: each id once, bits, levels and contents",
        "SIGKILLs": f"{kills}, which left {torn} torn shards behind",
        "undisturbed": f"{n / seconds:,.0f} images a second",
        "shards": f"{size / n:.0f} bytes an image",
    }
    report("killed", table([row]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
