"""Ten million images from end to end: encoded in shards, merged, indexed, searched from the prompt, added to, served.

    python benchmarks/ten_million.py IMAGES [N] [FOLDER]

IMAGES is a folder of photographs in folders that are their classes. A network of 64 bits is trained on their features,
and N images (ten million) are made of these: each is a mixture of the features of a photograph and of another one of
its class, so that codes are as learned ones are. From the features on it is the way that images take: 64 shards in
Parquet, a catalogue of all, an index. Every step is a process of its own, whose time and memory stand in the table.
FOLDER keeps what was made; N/1,000,000 GB are needed there.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measuring import in_child, memory_status, report, table
from numpy.typing import NDArray
from serve import BY_ID, load

from dmuh import Codes, Collection, Hasher, load_dataset
from dmuh.collection import Item
from dmuh.config import DataSettings
from dmuh.shards import Manifest, Shards, encode_shard
from dmuh.shards.sources.base import BATCH, ImageBatch

N_BITS, SHARDS, SECONDS = 64, 64, 20


class Mixtures:
    """Images that are mixtures of two photographs of a class, as a source of shards."""

    def __init__(self, folder: Path, n: int) -> None:
        self._features = np.load(folder / "features.npy", mmap_mode="r")
        self._classes = np.load(folder / "classes.npy")
        self._names = (folder / "classes.txt").read_text().splitlines()
        order = np.argsort(self._classes, kind="stable")
        starts = np.searchsorted(self._classes[order], np.arange(len(self._names) + 1))
        self._order, self._starts, self._n = order, starts, n

    def digest(self) -> str:
        """Return what tells these images from others."""
        return f"{self._n} mixtures of {len(self._features)} photographs"

    def batches(self, shard: int, shards: int) -> Iterator[ImageBatch]:
        """Yield the images of a shard."""
        first, last = (self._n * number // shards for number in (shard, shard + 1))
        for begin in range(first, last, BATCH):
            ids = np.arange(begin, min(begin + BATCH, last))
            yield self._batch(ids)

    def _batch(self, ids: NDArray[np.int64]) -> ImageBatch:
        rng = np.random.default_rng((7, int(ids[0])))
        one = rng.integers(0, len(self._features), len(ids))
        own = self._classes[one]
        begin, end = self._starts[own], self._starts[own + 1]
        other = self._order[begin + rng.integers(0, 2**31, len(ids)) % (end - begin)]
        share = rng.uniform(0.5, 1, (len(ids), 1)).astype(np.float32)
        mixed: Any = share * self._features[one] + (1 - share) * self._features[other]
        names = [f"/data/photos/{id_ // 10_000:04}/IMG_{id_:08}.jpg" for id_ in ids.tolist()]
        return ImageBatch(ids, names, mixed, [[self._names[label]] for label in own.tolist()])


def prepare(folder: Path, images: Path) -> None:
    """Write the features of the photographs, their classes, and a network that was trained on them."""
    from dmuh.features import BACKBONE
    from dmuh.images import ImageReader, Reading
    from dmuh.trainer.activation_cache import ActivationCache
    from dmuh.trainer.folder_codes import train_class, write_model
    from dmuh.trainer.kept_features import frozen_network

    data, network, reading = load_dataset(DataSettings("folder", str(images))), frozen_network(), Reading(0)
    with ImageReader(data.images, network.backbone.preprocess, reading) as reader:
        rows, _ = ActivationCache(network, data).rows(
            np.arange(len(data)), reader, mirror=False, count=reading.progress
        )
    features = np.asarray(rows, np.float32)
    np.save(folder / "features.npy", features)
    np.save(folder / "classes.npy", data.labels.argmax(axis=1))
    (folder / "classes.txt").write_text("\n".join(data.classes))
    labels = [data.label_names(position) for position in range(len(data))]
    settings = {"method": "dmuh-plus", "bits": N_BITS, "kernel": 0}
    write_model(folder / "model", train_class(network.backbone, BACKBONE, features, labels, settings))


def encode(folder: Path, n: int, part: int, parts: int) -> None:
    """Encode the shards of one of several processes."""
    hasher, source, shards = Hasher.load(folder / "model" / "head"), Mixtures(folder, n), Shards(folder / "codes")
    worth = hasher.calibration.grades[1].worth.tolist()
    shards.begin(Manifest(str(folder / "model"), hasher.digest, N_BITS, source.digest(), SHARDS, worth))
    for shard in range(part, SHARDS, parts):
        encode_shard(hasher, source, shards, shard)


def add(folder: Path, n: int) -> None:
    """Add 1,000 images to the collection and say how long that took beyond their encoding."""
    batch = next(Mixtures(folder, n + 1000).batches(SHARDS - 1, SHARDS))
    ids = np.arange(n, n + 1000)
    codes = Hasher.load(folder / "model" / "head").encode(np.asarray(batch.images[:1000]), ids=ids)
    labels = batch.labels[:1000]
    items = [Item(id_, f"/data/photos/new/{id_}.jpg", labels[row], None) for row, id_ in enumerate(ids.tolist())]
    began = time.perf_counter()
    Collection(folder / "codes").add(codes, items)
    print(time.perf_counter() - began)


def search(folder: Path, n: int) -> None:
    """Say how long a search for the 100 nearest takes, by one thread, in batches of 1,000.

    By Hamming distance and by sure bits; at first, and once the codes were put into cells beside the searches.
    """
    os.sched_setaffinity(0, {0})
    index = Collection(folder / "codes").load_index()
    hasher = Hasher.load(folder / "model" / "head")
    batch = next(Mixtures(folder, n + 100_000).batches(SHARDS - 1, SHARDS))
    queries: Codes = hasher.encode(np.asarray(batch.images[:1000]))

    def timed() -> tuple[float, float]:
        spent = []
        for ranking in ("hamming", "soft"):
            index.search(queries[:1], 100, ranking=ranking)
            began = time.perf_counter()
            index.search(queries, 100, ranking=ranking)
            spent.append(1000 * (time.perf_counter() - began) / len(queries))
        return spent[0], spent[1]

    at_first = timed()
    for _ in range(20):  # as often as it takes until cells pay
        index.search(queries, 100, ranking="hamming")
    for thread in threading.enumerate():
        if thread.name == "dmuh-cells":
            thread.join()
    print(*at_first, *timed())


def own(name: str, *arguments: object) -> tuple[float, float, str]:
    """Run a function of this file as a step, in a process of its own: its seconds, its megabytes, what it printed."""
    program = f"import runpy, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    program += f"runpy.run_path({__file__!r}, run_name='__main__')"
    seconds, _, megabytes, text = in_child(program, f"--{name}", *arguments)
    return seconds, megabytes, text


def dmuh(*arguments: object) -> tuple[float, float, str]:
    """Run a command of dmuh as a step."""
    seconds, _, megabytes, text = in_child("from dmuh.cli import main; main()", *arguments)
    return seconds, megabytes, text


def row(what: str, seconds: float, megabytes: float, more: str = "") -> dict[str, str]:
    """Return a row of the table."""
    found = {"step": what, "time": f"{seconds:.3g} s", "memory": f"{megabytes:,.0f} MB", "": more}
    print(found, file=sys.stderr, flush=True)
    return found


def measured(folder: Path, images: Path, n: int) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    if not (folder / "model").is_dir():
        own("prepare", folder, images)
    began = time.perf_counter()
    command = [sys.executable, __file__, "--encode", str(folder), str(n)]
    workers = [subprocess.Popen([*command, part, "2"]) for part in "01"]
    used = [os.wait4(worker.pid, 0)[2].ru_maxrss / 1024 for worker in workers]
    took = time.perf_counter() - began
    yield row("encoded from features, two processes", took, max(used), f"{n / took:,.0f} images per second")
    seconds, memory, _ = dmuh("index", folder / "codes")
    size = sum(file.stat().st_size for file in (folder / "codes").iterdir() if not file.name.startswith("shard-"))
    yield row(f"{SHARDS} shards merged and indexed", seconds, memory, f"{size / 1e9:.2f} GB on the disk")
    searched = [dmuh("search", folder / "codes", "--id", n // 2) for _ in range(2)]
    yield row("dmuh search by id, from the prompt", *min(searched)[:2])
    seconds, memory, text = own("search", folder, n)
    said = "{:.3f} ms per query by Hamming distance, {:.3f} ms by sure bits; once in cells {:.3f} and {:.3f} ms"
    yield row("index opened, thousands of queries for the 100 nearest", seconds, memory,
              said.format(*map(float, text.split())))  # fmt: skip
    seconds, memory, text = own("add", folder, n)
    yield row("1,000 images added", float(text), memory, "beyond their encoding")
    yield served(folder, n)


def served(folder: Path, n: int) -> dict[str, str]:
    """Return the row of the service."""
    script = folder / "by_id.lua"
    script.write_text(BY_ID.format(last=n - 1))
    began = time.perf_counter()
    command = ["serve", str(folder / "model"), "--index", str(folder / "codes"), "--port", "0"]
    with subprocess.Popen([sys.executable, "-m", "dmuh", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        ready = time.perf_counter() - began
        try:
            under = load(process.pid, address.rstrip("/"), script, SECONDS)
            memory = memory_status("VmHWM", process.pid) / 1024
        finally:
            process.send_signal(signal.SIGINT)
    answers = f"{under.rate:,.0f} searches by id per second, p99 {under.p99:.0f} ms"
    return row("dmuh serve, until it answers", ready, memory, answers)


def main(images: str, n: str = "10000000", folder: str = "") -> None:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(folder or temporary)
        kept.mkdir(parents=True, exist_ok=True)
        report("ten-million", table(list(measured(kept.absolute(), Path(images), int(n)))))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--prepare", folder, images]:
            prepare(Path(folder), Path(images))
        case ["--encode", folder, n, part, parts]:
            encode(Path(folder), int(n), int(part), int(parts))
        case ["--add", folder, n]:
            add(Path(folder), int(n))
        case ["--search", folder, n]:
            search(Path(folder), int(n))
        case given:
            main(*given)
