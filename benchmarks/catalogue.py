"""The catalogue of an index at a million images: written, opened, searched, changed and served.

    python benchmarks/catalogue.py [N]

N codes of 64 bits with one sure bit each (a million), paths, labels and metadata are made up and written by the code
that `dmuh index` writes by. `dmuh search` is measured from the prompt, in a new process, with an exported network; the
memory is the most that this process has. The peer of opening and of reading ten images is the
layout that the catalogue replaced: codes in a file of arrays, and a line of JSON per image. That of serving is the copy
that a service made of it at its first start, and the reading of all rows at every later one.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measuring import memory_status, random_codes, report, table
from PIL import Image

from dmuh import Codes, Collection, HammingIndex, Hasher, configure, load_dataset, train
from dmuh.catalogue import Catalogue, Entry, kept_index
from dmuh.collection import Item
from dmuh.encoder import export_run

N_BITS, PART, ROOT = 64, 65_536, "/data/photos"
SEARCH = "from dmuh.cli import main; main()"
IMPORTS = "import dmuh.cli.search, dmuh.cli.answers, dmuh.collection, dmuh.encoder, dmuh.datasets, dmuh.shards"
MEASURED = "\nimport resource, sys; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"


def made_up(n: int, first: int, rng: np.random.Generator) -> tuple[Codes, list[Item]]:
    """Return codes and items of n images, with ids from `first` on."""
    bits, levels = (random_codes(n, N_BITS, rng).bits for _ in range(2))
    worth = np.array([[0.3, 0.9]] * N_BITS, np.float32)
    ids, contents = np.arange(first, first + n), rng.integers(-(2**63), 2**63 - 1, n)
    unsure = rng.uniform(0.05, 0.3, n).round(6).tolist()
    items = [
        Item(id_, f"{ROOT}/{id_ % 365:03}/IMG_{id_:08}.jpg", [f"label {id_ % 50}"], unsure[row], {"camera": "x100"})
        for row, id_ in enumerate(ids.tolist())
    ]
    return Codes(bits, N_BITS, ids=ids, levels=levels[:, None], worth=worth, contents=contents), items


def parts(n: int, seed: int = 0) -> Iterator[tuple[Codes, list[Item]]]:
    """Yield the images of a collection, some at a time."""
    rng = np.random.default_rng(seed)
    for first in range(0, n, PART):
        yield made_up(min(PART, n - first), first, rng)


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[float, float]:
    """Return the shortest of a few times of the work, by the clock and of this process on cores."""
    best = best_cpu = float("inf")
    for _ in range(repeat):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        best, best_cpu = min(best, time.perf_counter() - began), min(best_cpu, time.process_time() - cpu)
    return best, best_cpu


def in_child(program: str, *arguments: object, folder: Path, kernels: Path) -> tuple[float, float, float]:
    """Run a program in a new process; return its seconds, those on a core, and the megabytes that it took."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = code
    elapsed = time.perf_counter() - began
    assert code == 0, f"{arguments} ended with {code}"
    del before
    return elapsed, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def best_of(runs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Return the shortest times and the largest memory of some runs."""
    return min(run[0] for run in runs), min(run[1] for run in runs), max(run[2] for run in runs)


class EarlierLayout:
    """What an index was before: codes in arrays, a line of JSON per image, where each line begins, and no catalogue."""

    def __init__(self, folder: Path) -> None:
        self.codes, self.items, self.index = folder / "codes.safetensors", folder / "items.jsonl", folder / "index"

    def write(self, n: int) -> None:
        """Write it, all at once, as it was."""
        every = list(parts(n))
        codes = Codes.concatenated([part for part, _ in every])
        codes.save(self.codes)
        self.items.write_text("".join(json.dumps(vars(item)) + "\n" for _, items in every for item in items))
        HammingIndex().add(codes).save(self.index)

    def parse(self) -> dict[int, Item]:
        """Read all items, for the ten that a search found."""
        with self.items.open() as lines:
            return {item.id: item for item in (Item(**json.loads(line)) for line in lines)}

    def change(self, n: int, new: int) -> None:
        """Add images: all is written again."""
        codes, items = Codes.load(self.codes), self.parse()
        more, listed = made_up(new, n, np.random.default_rng(1))
        whole = Codes.concatenated([codes, more])
        text = "".join(json.dumps(vars(item)) + "\n" for item in [*items.values(), *listed])
        whole.save(self.codes.with_name("new codes"))
        self.items.with_name("new items").write_text(text)
        HammingIndex().add(whole).save(self.index.with_name("new index"))

    def serve(self, file: Path) -> None:
        """Copy all into the catalogue of a service, as its first start did, and make the index of it."""
        codes, items = Codes.load(self.codes), self.parse()
        below = len(ROOT) + 1
        entries = (
            Entry(item.path[below:], item.labels, item.metadata, item.id, uncertainty=item.uncertainty)
            for item in items.values()
        )
        with Catalogue(file, N_BITS) as catalogue:
            catalogue.add(entries, codes)
            HammingIndex().add(catalogue.codes())


def prepared(folder: Path) -> str:
    """Write a network and an image to search for; return the digest of the network."""
    settings = configure({"epochs": 1, "bits": N_BITS})
    digits = load_dataset(settings.data)
    run = train(settings, folder / "run", dataset=digits)
    export_run(run.path, folder / "model")
    Image.fromarray(np.asarray(digits.images[0])).save(folder / "query.png")
    return Hasher.load(folder / "model").digest


def row(what: str, peer: str, theirs: str, ours: str, ratio: float | None = None) -> dict[str, str]:
    """Return a row of the table."""
    found = {"what": what, "peer": peer, "the peer": theirs, "dmuh": ours, "ratio": f"{ratio:.1f}×" if ratio else ""}
    print(found, file=sys.stderr, flush=True)
    return found


def main(n: int = 1_000_000) -> None:
    """Measure and print the table."""
    import logging

    logging.getLogger("dmuh").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digest = prepared(folder)
        collection, old = Collection(folder / "index"), EarlierLayout(folder)
        rows = []

        before = memory_status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        wrote, _ = timed(lambda: collection.write_parts(parts(n), ROOT, folder / "model", digest))
        rise = (memory_status("VmHWM") - before) / 1024
        built, _ = timed(collection.build_index)
        old_wrote, _ = timed(lambda: old.write(n))
        size = collection.catalogue_file.stat().st_size / 1e6
        rows.append(row(f"{n:,} images written ({size:.0f} MB), with the index", "earlier layout", f"{old_wrote:.1f} s",
                        f"{wrote + built:.1f} s, {rise:.0f} MB beyond before", old_wrote / (wrote + built)))  # fmt: skip

        rng = np.random.default_rng(2)
        wanted = [rng.integers(0, n, 10).tolist() for _ in range(5)]
        ours, _ = timed(lambda: collection.items(wanted[0]), 5)
        theirs, _ = timed(old.parse)
        rows.append(row("10 images read of a folder that was not open", "items.jsonl parsed", f"{theirs:.2f} s",
                        f"{1000 * ours:.1f} ms", theirs / ours))  # fmt: skip

        kernels = folder / "kernels"
        in_child(SEARCH, "warm", folder=folder, kernels=kernels)
        runs, imports = [], []
        for _ in range(4):  # side by side, so that whatever else the machine does meets both
            runs.append(in_child(SEARCH, "search", "index", "query.png", folder=folder, kernels=kernels))
            imports.append(in_child(IMPORTS, folder=folder, kernels=kernels))
        (clock, cpu, megabytes), (base, _, _) = best_of(runs), best_of(imports)
        rows.append(row("dmuh search, from the prompt", "its imports alone", f"{base:.2f} s",
                        f"{clock:.2f} s ({cpu:.2f} s on a core), {megabytes:.0f} MB"))  # fmt: skip

        new = 1000
        added = []
        for turn in range(5):
            codes, items = made_up(new, n + turn * new, np.random.default_rng(turn))
            added.append(timed(lambda codes=codes, items=items: collection.add(codes, items))[0])
        theirs, _ = timed(lambda: old.change(n, new))
        ours = min(added)
        rows.append(row(f"{new:,} images added", "written again", f"{theirs:.1f} s", f"{ours:.3f} s", theirs / ours))
        gone, _ = timed(lambda: collection.remove(range(n, n + new)))
        rows.append(row(f"{new:,} images removed", "written again", f"{theirs:.1f} s", f"{gone:.3f} s", theirs / gone))
        runs = [in_child(SEARCH, "search", "index", "query.png", folder=folder, kernels=kernels) for _ in range(3)]
        clock, cpu, megabytes = best_of(runs)
        rows.append(row("dmuh search, with 6,000 changes since the index file", "its imports alone", f"{base:.2f} s",
                        f"{clock:.2f} s ({cpu:.2f} s on a core), {megabytes:.0f} MB"))  # fmt: skip

        copied, _ = timed(lambda: old.serve(folder / "copy" / "catalogue.sqlite"))

        def open_served() -> None:
            with Catalogue(collection.catalogue_file, N_BITS) as catalogue:
                kept_index(catalogue, catalogue.index_file)

        def open_read() -> None:
            with Catalogue(collection.catalogue_file, N_BITS) as catalogue:
                HammingIndex().add(catalogue.codes())

        ours, _ = timed(open_served, 3)
        rows.append(row("opened to be served, the first time", "copied", f"{copied:.1f} s", f"{ours:.2f} s",
                        copied / ours))  # fmt: skip
        again, _ = timed(open_read)
        rows.append(row("opened to be served, again", "all rows read", f"{again:.1f} s", f"{ours:.2f} s", again / ours))
        before = memory_status("VmRSS")
        for _ in range(20):
            open_served()
        rise = (memory_status("VmRSS") - before) / 1024
        rows.append(row("memory after 20 openings more", "", "", f"{rise:+.0f} MB"))
        shutil.rmtree(folder / "copy")
        report("catalogue", table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
