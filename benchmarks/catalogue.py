"""The catalogue of an index at a million images: written, opened, searched, changed and served.

    python benchmarks/catalogue.py [N]

N codes of 64 bits with one sure bit each (a million), paths, labels and metadata are made up and written by the code
that `dmuh index` writes by. `dmuh search` is measured from the prompt, in a new process, with an exported network; the
memory is the most that this process has. The peer of opening and of reading ten images is the
layout that the catalogue replaced: codes in a file of arrays, and a line of JSON per image. That of serving is the copy
that a service made of it at its first start, and the reading of all rows at every later one.
"""

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import in_child, memory_status, random_codes, report, table
from PIL import Image

from dmuh import Codes, Collection, HammingIndex, Hasher, configure, load_dataset, train
from dmuh.catalogue import Catalogue, Entry, kept_index
from dmuh.collection import Item
from dmuh.encoder import export_run

N_BITS, PART, ROOT = 64, 65_536, "/data/photos"
SEARCH = "from dmuh.cli import main; main()"
IMPORTS = "import dmuh.cli.search, dmuh.cli.answers, dmuh.collection, dmuh.encoder, dmuh.datasets, dmuh.shards"


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


class Took(NamedTuple):
    """How long something took: by the clock, and on a core."""

    clock: float
    core: float

    def __str__(self) -> str:
        return f"{self.clock:.3g} s ({self.core:.3g} s on a core)"


def timed(work: Callable[[], Any], repeat: int = 1) -> Took:
    """Return the shortest of a few times of the work."""
    best = Took(float("inf"), float("inf"))
    for _ in range(repeat):
        began, core = time.perf_counter(), time.process_time()
        work()
        took = Took(time.perf_counter() - began, time.process_time() - core)
        best = Took(*map(min, best, took))
    return best


def in_new_process(program: str, *arguments: object, folder: Path, kernels: Path) -> tuple[Took, float]:
    """Run a program in a new process; return its time, and the megabytes that it took."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    seconds, on_a_core, megabytes, _ = in_child(program, *arguments, env=environment, cwd=folder)
    return Took(seconds, on_a_core), megabytes


class EarlierLayout:
    """What an index was before: codes in arrays, a line of JSON per image, where each line begins, and no catalogue."""

    def __init__(self, folder: Path) -> None:
        self.codes, self.items, self.index = folder / "codes", folder / "items.jsonl", folder / "index"

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


def row(what: str, peer: str, theirs: Took | None, ours: Took, more: str = "") -> dict[str, str]:
    """Return a row of the table; the ratio is of seconds on a core, which others on the machine do not change."""
    found = {
        "what": what,
        "peer": peer,
        "its time": "" if theirs is None else str(theirs),
        "dmuh": f"{ours}{more}",
        "ratio": "" if theirs is None else f"{theirs.core / ours.core:.1f}×",
    }
    print(found, file=sys.stderr, flush=True)
    return found


def measured(folder: Path, n: int) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    digest = prepared(folder)
    collection, old = Collection(folder / "index"), EarlierLayout(folder / "earlier")
    before = memory_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    wrote = timed(lambda: collection.write_parts(parts(n), ROOT, folder / "model", digest))
    rise = (memory_status("VmHWM") - before) / 1024
    size = collection.catalogue_file.stat().st_size / 1e6
    yield row(
        f"{n:,} images written",
        "earlier layout",
        timed(lambda: old.write(n)),
        wrote,
        f", {size:.0f} MB on the disk, {rise:.0f} MB of memory",
    )
    collection.build_index()
    parsed = timed(old.parse)
    wanted = np.random.default_rng(2).integers(0, n, 10).tolist()
    yield row("10 images read of a folder", "items.jsonl parsed", parsed, timed(lambda: collection.items(wanted), 5))
    yield searched(folder, "dmuh search, from the prompt")
    new = 1000
    more = [made_up(new, n + turn * new, np.random.default_rng(turn)) for turn in range(5)]
    added = [timed(lambda part=part: collection.add(*part)) for part in more]
    again = timed(lambda: old.change(n, new))
    yield row(f"{new:,} images added", "all written again", again, min(added))
    removed = timed(lambda: collection.remove(range(n, n + new)))
    yield row(f"{new:,} images removed", "all written again", again, removed)
    yield searched(folder, f"dmuh search, {6 * new:,} changes after the index file was written")

    def serve() -> None:
        with Catalogue(collection.catalogue_file, N_BITS) as catalogue:
            kept_index(catalogue, catalogue.index_file)

    def serve_all() -> None:
        with Catalogue(collection.catalogue_file, N_BITS) as catalogue:
            HammingIndex().add(catalogue.codes())

    copied, read, opened = (
        timed(lambda: old.serve(folder / "copy" / "catalogue.sqlite")),
        timed(serve_all),
        timed(serve, 3),
    )
    yield row("opened to be served, the first time", "all copied", copied, opened)
    before = memory_status("VmRSS")
    for _ in range(20):
        serve()
    rise = (memory_status("VmRSS") - before) / 1024
    yield row("opened to be served, again", "all rows read", read, opened, f"; {rise:+.0f} MB after 20 times")


def searched(folder: Path, what: str) -> dict[str, str]:
    """Return the row of a search from the prompt, side by side with its imports, so that other work meets both."""
    kernels = folder / "kernels"
    in_new_process(SEARCH, "warm", folder=folder, kernels=kernels)
    runs = [
        (in_new_process(SEARCH, "search", "index", "query.png", folder=folder, kernels=kernels),
         in_new_process(IMPORTS, folder=folder, kernels=kernels))
        for _ in range(4)
    ]  # fmt: skip
    most = max(memory for (_, memory), _ in runs)
    ours, base = (min(run[which][0] for run in runs) for which in (0, 1))
    return row(what, "its imports alone", base, ours, f", {most:.0f} MB of memory")


def main(n: int = 1_000_000) -> None:
    """Measure and print the table."""
    logging.getLogger("dmuh").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        report("catalogue", table(list(measured(Path(name), n))))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
