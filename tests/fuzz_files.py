"""A fuzzer of every file that dmuh writes: `python tests/fuzz_files.py [TIMES] [SEED]`, or `make fuzz`.

Bytes are flipped, files are cut, and files are swapped with those of a twin that was made from other images or another
seed. Whatever is read afterwards has to be refused with a sentence (a DmuhError) or be what it was: never another
answer, never a traceback. Damage that is noticed and made good, such as features that are computed again, is the same
answer.
"""

import dataclasses
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from dmuh.bench import read_grid
from dmuh.bench.cells import run_cell, summary_of
from dmuh.bench.results import write_results
from dmuh.catalogue import Catalogue, Decision, Entry
from dmuh.codes import Codes
from dmuh.collection import Collection, Item, Source
from dmuh.datasets import Dataset, one_hot
from dmuh.encoder import Hasher, export_run
from dmuh.encoder.captions import keep_captions, read_captions
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.encoder.syncing import sources_to_follow
from dmuh.errors import DmuhError
from dmuh.features import FeatureNetwork, folder_features
from dmuh.images import ImageReader, Reading
from dmuh.index import HammingIndex
from dmuh.methods import configure
from dmuh.report.tables import read_results
from dmuh.runs import Run, open_run
from dmuh.shards import Shards, encode_shard
from dmuh.shards.sources import DatasetSource
from dmuh.trainer import train
from dmuh.trainer.activation_cache import ActivationCache
from dmuh.trainer.evaluation import evaluate_run
from earlier import write_earlier
from graded import graded_codes
from sharded import begun, noisy_images, projecting_hasher
from tiny import noise, noise_set, tiny

Ask = Callable[[], Any]

_TEXTS = "texts.safetensors"


@dataclass(frozen=True)
class Case:
    """A kind of file: where it lies, where its twin lies, and what is read from it."""

    name: str
    file: Path
    twin: Path
    ask: Ask


@dataclass(frozen=True)
class Finding:
    """Damage that was not noticed, or ended in a traceback."""

    case: str
    damage: str
    what: str


def vectors(seed: int, n: int = 90) -> Dataset:
    """Feature vectors in three clusters."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    features = rng.normal(size=(3, 8))[classes] + 0.5 * rng.normal(size=(n, 8))
    return Dataset("features", features.astype(np.float32), one_hot(classes), ("a", "b", "c"))


def codes_of(seed: int, n: int = 60, n_bits: int = 20) -> Codes:
    """Codes with uncertainty, some of them equal."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(n // 2, n_bits)).repeat(2, axis=0)
    return graded_codes(outputs, 1, np.arange(n) * 3 + seed)


def plain(codes: Codes) -> list[Any]:
    """Codes as a value that can be compared."""
    unsure = None if codes.uncertainty is None else codes.uncertainty.tolist()
    contents = None if codes.contents is None else codes.contents.tolist()
    return [codes.n_bits, codes.bits.tolist(), unsure, codes.ids.tolist(), contents]


def cases_of_codes(root: Path) -> Iterator[Case]:
    """Codes and indexes as files of their own."""
    for seed, folder in enumerate((root / "one", root / "two")):
        codes_of(seed).save(folder / "codes.safetensors", of="images")
        HammingIndex().add(codes_of(seed)).save(folder / "index.safetensors", of=f"codes {seed}")
    codes, index = root / "one" / "codes.safetensors", root / "one" / "index.safetensors"
    # codes say what they are of, so twins of the same images and model differ by a crash of the disk alone
    codes_of(1).save(root / "two" / "codes.safetensors", of="other images")

    def search() -> Any:
        found = HammingIndex.load(index, of="codes 0").search(codes_of(0), 5)
        return [found.distances.tolist(), found.ids.tolist()]

    yield Case("codes.safetensors", codes, root / "two" / codes.name, lambda: plain(Codes.load(codes, of="images")))
    yield Case("index.safetensors", index, root / "two" / index.name, search)


def cases_of_collections(root: Path) -> Iterator[Case]:
    """The folder of an index."""
    for seed, name in enumerate(("one", "two")):
        data = Dataset("images", [root / f"{n}.png" for n in range(200)], np.ones((200, 1), np.uint8), ("label",))
        files = np.random.default_rng(seed).integers(0, 2**40, (200, 2))
        made, source = Collection(root / name), Source([str(root)], {"dataset": "folder"})
        made.write(codes_of(seed), data, root / "model", f"d1e{seed}", source=source, files=files)
        made.build_index()
        made.add(codes_of(seed + 2)[:5], [Item(0, str(root / f"new {n}.png"), ["new"], 0.25) for n in range(5)])
        made.remove([seed + 9])
    own = Collection(root / "one")

    def checked() -> None:
        if own.model()[1] != "d1e0":  # as a search does
            raise DmuhError("another model's")

    def searched() -> Any:
        checked()
        found = own.load_index().search(codes_of(0), 5)
        items = own.items(found.ids[::7].ravel().tolist())  # of a few, as a search reads them
        return [found.ids.tolist(), {id_: vars(item) for id_, item in items.items()}]

    def read() -> Any:
        checked()
        items = {id_: vars(item) for id_, item in own.items().items()}
        with own.reading() as catalogue:
            stamps = catalogue.files()
        about = [stamps, [vars(source) for source in own.sources()], own.codes_digest()]
        return [searched(), plain(own.load_codes()), str(own.model()), items, own.uncertainty_percentiles(), about]

    for file in sorted(own.path.iterdir()):
        if file.stat().st_size:  # not the lock
            yield Case(f"index folder: {file.name}", file, root / "two" / file.name, read)
            yield Case(f"index folder, searched: {file.name}", file, root / "two" / file.name, searched)


def cases_of_earlier_collections(root: Path) -> Iterator[Case]:
    """The folder of an index as earlier versions wrote it, which is converted when it is opened."""
    for seed, name in enumerate(("one", "two")):
        codes = codes_of(seed)
        unsure = codes.image_uncertainty.tolist()
        items = [
            Item(id_, str(root / f"{id_}.png"), [f"label {id_ % 3}"], unsure[row])
            for row, id_ in enumerate(codes.ids.tolist())
        ]
        files = np.column_stack([codes.ids, np.random.default_rng(seed).integers(1, 2**40, (len(codes), 2))])
        source = {"images": [str(root)], "options": {}}
        write_earlier(root / name, codes, items, root / "model", f"d1e{seed}", source=source, files=files)
    folder = root / "one"

    def ask() -> Any:
        own = Collection(Path(shutil.copytree(folder, root / "opened")))
        try:
            if own.model()[1] != "d1e0":
                raise DmuhError("another model's")
            items = {id_: vars(item) for id_, item in own.items().items()}
            found = own.load_index().search(codes_of(0), 5)
            with own.reading() as catalogue:
                stamps = catalogue.files()
            sources = [vars(source) for source in sources_to_follow(own)]
            return [plain(own.load_codes()), items, found.ids.tolist(), stamps, sources]
        finally:
            shutil.rmtree(root / "opened")

    for file in sorted(folder.iterdir()):
        yield Case(f"earlier index folder: {file.name}", file, root / "two" / file.name, ask)


def cases_of_shards(root: Path) -> Iterator[Case]:
    """A folder of shards."""
    for n, name in ((40, "one"), (44, "two")):
        source = DatasetSource(noisy_images(n))
        made = begun(root / name, source, 2)
        for shard in range(2):
            encode_shard(projecting_hasher(), source, made, shard, Reading(0))
    own = Shards(root / "one")

    def ask() -> Any:
        parts = [[plain(part.codes), part.paths, part.labels] for part in own.contents()]
        return [parts, {id_: vars(item) for id_, item in own.items(range(40)).items()}]

    for file in (own.path / "shards.json", own.file(0, 2), own.file(0, 2).with_suffix(".json")):
        yield Case(f"shards: {file.name}", file, root / "two" / file.name, ask)


def trained_by(run: Run, data: Dataset) -> str:
    """The settings of a run, but for those that say where its data lie and what computes it, which may change."""
    config = open_run(run.path, data).config
    training = dataclasses.replace(config.training, device="auto", workers=None)
    return repr(dataclasses.replace(config, data=dataclasses.replace(config.data, data=""), training=training))


def cases_of_runs(root: Path) -> Iterator[Case]:
    """A finished run, one that was broken off, and its export."""
    common = {"dataset": "features", "epochs": 3, "bits": 8, "batch_size": 16, "query": 6, "train": 12}
    data, runs = vectors(0), []
    for seed, name in enumerate(("one", "two")):
        run = train(configure(common, {"seed": seed}), root / name, dataset=data)
        evaluate_run(run, data)
        run.save_study({"images": {"margin": seed}})
        Hasher.load(run.path)
        export_run(run.path, root / f"exported {name}")
        runs.append(run)
    run, other = runs

    def encoded() -> Any:
        return plain(Hasher.load(run.path).encode(data.images))

    def evaluated() -> Any:
        return evaluate_run(run, data).metrics.to_dict()

    asks: dict[str, Ask] = {
        "config.toml": lambda: trained_by(run, data),
        "run.json": lambda: [trained_by(run, data), run.metrics(), run.load_model().checksum],
        "environment.json": run.environment,
        "split.safetensors": evaluated,
        "metrics.jsonl": run.metrics,
        "trace.jsonl": run.trace,
        "model.safetensors": encoded,
        "model.onnx": encoded,
        "model.onnx.sha256": encoded,
        "query_codes.safetensors": evaluated,
        "database_codes.safetensors": evaluated,
        "evaluation.json": run.evaluation,
        "uncertainty.json": run.study,
    }
    for name, ask in asks.items():
        yield Case(f"run: {name}", run.path / name, other.path / name, ask)
    bundle = root / "exported one"
    for name in ("model.json", "model.onnx"):
        twin = root / "exported two" / name
        yield Case(f"export: {name}", bundle / name, twin, lambda: plain(Hasher.load(bundle).encode(data.images)))
    yield from cases_of_checkpoints(root, common, data)


def pairs(seed: int, n: int = 90) -> Dataset:
    """Feature vectors in three clusters, each with sentences that say which it is."""
    data = vectors(seed, n)
    words = (("a round thing", "one that rolls"), ("a thing with corners",), ("something soft", "a thing to sleep on"))
    return dataclasses.replace(data, texts=tuple(words[int(row.argmax())] for row in data.labels))


def cases_of_texts(root: Path) -> Iterator[Case]:
    """A model for images and texts, its export, and the codes of the sentences about the images of an index."""
    common = {"dataset": "features", "method": "dmuh-x", "text_encoder": "words", "epochs": 3, "kernel": 0}
    data, said = pairs(0), ["a round thing", "something soft", "nothing of the kind"]
    for seed, name in enumerate(("one", "two")):
        settings = {"bits": 8, "batch_size": 16, "query": 6, "train": 20, "validation": 0.3, "seed": seed}
        train(configure(common, settings), root / name, dataset=data, progress=False)
        hasher = Hasher.load(root / name)
        export_run(root / name, root / f"exported {name}")
        index = Collection(root / f"index {name}")
        texts = [["first", "second"][seed], *(" ".join(own) for own in data.texts[1:])]
        described = dataclasses.replace(data, metadata={"caption": texts})
        source = Source([str(root)], {"dataset": "csv", "texts": "caption"})
        index.write(hasher.encode(data.images), described, root / name, hasher.digest, source=source)
        keep_captions(index, hasher)
    run, bundle, own = root / "one", root / "exported one", Collection(root / "index one")
    for name in ("model.safetensors", "text_head.onnx", "text_head.onnx.sha256"):
        yield Case(f"run with texts: {name}", run / name, root / "two" / name, lambda: answers_of(run, data, said))
    for file in sorted(bundle.iterdir()):
        twin = root / "exported two" / file.name
        yield Case(f"export with texts: {file.name}", file, twin, lambda: answers_of(bundle, data, said))

    def captions() -> Any:
        with own.reading() as catalogue:
            found = read_captions(catalogue, Hasher.load(run))
        return [found.sentences, found.images, plain(found.codes)]

    yield Case("index folder: texts.safetensors", own.path / _TEXTS, root / "index two" / _TEXTS, captions)


def answers_of(model: Path, data: Dataset, said: list[str]) -> Any:
    """What a model for images and texts gives for some of each."""
    hasher = Hasher.load(model)
    return [plain(hasher.encode(data.images)), plain(hasher.encode_texts(said))]


def cases_of_checkpoints(root: Path, common: dict[str, Any], data: Dataset) -> Iterator[Case]:
    """A run that was broken off, and the weights that it comes to when it goes on."""
    for seed, name in enumerate(("half", "other half")):

        def stop(step: Any) -> None:
            if step.epoch == 3:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            train(configure(common, {"seed": seed}), root / name, dataset=data, progress=stop)
    folder = root / "half"

    def go_on() -> Any:
        copy = Path(shutil.copytree(folder, root / "going on", dirs_exist_ok=False))
        try:
            run = train(open_run(copy, data).config, copy, dataset=data, resume=True)
            arrays = {name: array.tolist() for name, array in run.load_model().arrays.items()}
            return [arrays, [line["loss"] for line in run.metrics()]]
        finally:
            shutil.rmtree(copy)

    for name in ("checkpoint.safetensors", "metrics.jsonl", "config.toml"):
        yield Case(f"unfinished run: {name}", folder / name, root / "other half" / name, go_on)


def cases_of_features(root: Path) -> Iterator[Case]:
    """The kept features of a frozen network."""
    os.environ["DMUH_CACHE"] = str(root / "cache")
    network, other = tiny(freeze="conv"), tiny(freeze="conv", seed=1)
    data = noise_set(12)

    def rows(of: Any) -> Any:
        with ImageReader(data.images, of.backbone.preprocess, Reading(0)) as reader:
            return ActivationCache(of, data).rows(np.arange(12), reader, mirror=False)[0].tolist()

    rows(network)
    (own,) = (root / "cache").rglob("plain")
    rows(other)
    (twin,) = set((root / "cache").rglob("plain")) - {own}
    for name in ("rows.bin", "done.bin"):
        yield Case(f"kept features: {name}", own / name, twin / name, lambda: rows(network))


def cases_of_folders(root: Path) -> Iterator[Case]:
    """The kept features of a folder."""
    lower = tiny(freeze="all")
    content = to_onnx(FrozenPart(lower))
    network = FeatureNetwork("tiny", 8, lower.backbone.preprocess, lambda: OnnxNetwork(content))
    for seed, name in enumerate(("one", "two")):
        (root / name).mkdir(parents=True)
        for n, pixels in enumerate(noise(6, 12, seed)):
            Image.fromarray(pixels).save(root / name / f"{n}.png")
        folder_features(root / name, network=network)
    part = Path(".dmuh", "features", "part-000001.safetensors")

    def features() -> Any:
        found = folder_features(root / "one", network=network)
        return [list(map(str, found.paths)), found.activations.tolist(), found.stamps.tolist()]

    yield Case("features of a folder", root / "one" / part, root / "two" / part, features)


GRID = """
[settings]
dataset = "features"
data = "{data}"
batch_size = 16
epochs = 2
bits = 8

[[table]]
name = "methods"
method = ["dmuh", "itq"]
seed = {seeds}
"""


def cases_of_benches(root: Path) -> Iterator[Case]:
    """A bench."""
    np.save(root / "features.npy", vectors(0).images)
    np.save(root / "labels.npy", np.arange(90) % 3)
    folders = []
    for name, seeds in (("one", "[0]"), ("two", "[1]")):
        (root / f"{name}.toml").write_text(GRID.format(data=root, seeds=seeds))
        grid = read_grid(root / f"{name}.toml", {})
        for cell in grid.cells:
            run_cell(cell, root / name / "runs" / cell.name, threads=1)
        write_results(grid, root / name)
        folders.append([root / name / "runs" / cell.name for cell in grid.cells])
    own, twin = folders[0][0], folders[1][0]
    yield Case("bench: cell.json", own / "cell.json", twin / "cell.json", lambda: summary_of(own))
    for name in ("results.csv", "tables.json"):
        yield Case(f"bench: {name}", root / "one" / name, root / "two" / name, lambda: read_results(root / "one"))


def cases_of_catalogues(root: Path) -> Iterator[Case]:
    """The catalogue of a service, closed rightly."""
    for seed, name in enumerate(("one", "two")):
        codes = codes_of(seed)
        entries = [
            Entry(f"photos/{n:03}.jpg", [f"label {n % 4}"], {"taken": f"20{n:02}"}, stamp=n) for n in range(len(codes))
        ]
        with Catalogue(root / name / "catalogue.sqlite", codes.n_bits) as catalogue:
            catalogue.note(model=f"model {seed}", source="folder")
            catalogue.add(entries, codes)
            for id_ in (3, 17, 40):
                catalogue.remove(id_)
            for id_ in range(20, 30):
                catalogue.decide(id_, Decision("own", ("another",)))
    file = root / "one" / "catalogue.sqlite"

    def ask() -> Any:
        with Catalogue(file, 20) as catalogue:
            if catalogue.about("model") != "model 0":  # as a service does
                raise DmuhError("another model's")
            listed = [[*map(str, row)] for order in ("id", "uncertainty") for row in catalogue.listed(order, 100)]
            labelled = [[*map(str, row)] for row in catalogue.listed("id", 100, label="label 1")]
            found = [catalogue.id_of(f"photos/{n:03}.jpg", added=False) for n in range(60)]
            kept = [plain(catalogue.codes()), plain(catalogue.codes("label 2")), catalogue.labels(), len(catalogue)]
            kept.append({id_: [said.kind, *said.labels] for id_, said in catalogue.decisions().items()})
            return [listed, labelled, found, kept, sorted(catalogue.files().items()), sorted(catalogue.forgotten())]

    for name in (file.name, f"{file.name}.sha256"):
        yield Case(f"service: {name}", file.with_name(name), root / "two" / name, ask)


KINDS = (
    cases_of_codes, cases_of_collections, cases_of_earlier_collections, cases_of_shards, cases_of_runs,
    cases_of_texts, cases_of_features, cases_of_folders, cases_of_benches, cases_of_catalogues,
)  # fmt: skip


def damaged(whole: bytes, twin: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done to a file's content, and what it is now."""
    match rng.choice(("flip", "flip", "flip", "bytes", "cut", "swap", "zeros")):
        case "flip":
            at, bit = rng.randrange(len(whole)), rng.randrange(8)
            return f"bit {bit} of byte {at}", whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        case "bytes":
            changed = bytearray(whole)
            places = [rng.randrange(len(whole)) for _ in range(rng.randrange(2, 9))]
            for at in places:
                changed[at] = rng.randrange(256)
            return f"bytes {places}", bytes(changed)
        case "cut":
            length = rng.randrange(len(whole))
            return f"cut to {length} of {len(whole)}", whole[:length]
        case "zeros":
            at = rng.randrange(len(whole))
            n = min(rng.choice((16, 512, 4096)), len(whole) - at)
            return f"{n} zeros from {at}", whole[:at] + bytes(n) + whole[at + n :]
        case _:
            return "swapped", twin


def restored(folder: Path, kept: dict[Path, bytes]) -> None:
    """Bring a folder back to what it was."""
    for file in folder.iterdir():
        if file.is_file() and file not in kept:
            file.unlink()
    for file, content in kept.items():
        if not file.exists() or file.read_bytes() != content:
            file.write_bytes(content)


def fuzz(case: Case, times: int, rng: random.Random) -> tuple[Counter[str], list[Finding]]:
    """Damage a file so often; return what became of it, and what should not have."""
    kept = {file: file.read_bytes() for file in case.file.parent.iterdir() if file.is_file()}
    whole, twin = kept[case.file], case.twin.read_bytes()
    expected = json.dumps(case.ask())
    restored(case.file.parent, kept)
    seen: Counter[str] = Counter()
    findings = []
    for _ in range(times):
        damage, content = damaged(whole, twin, rng)
        case.file.write_bytes(content)
        try:
            same = json.dumps(case.ask()) == expected
            seen["same answer"] += same
            if not same:
                findings.append(Finding(case.name, damage, "another answer"))
        except DmuhError:
            seen["refused"] += 1
        except Exception as error:
            findings.append(Finding(case.name, damage, f"{type(error).__name__}: {error}"))
        restored(case.file.parent, kept)
    return seen, findings


def run(times: int, seed: int, only: str = "") -> Iterator[tuple[Case, Counter[str], list[Finding], float]]:
    """Fuzz every kind of file; yields what each gave, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            root = Path(folder) / kind.__name__
            root.mkdir()
            for number, case in enumerate(kind(root)):
                if only in case.name:
                    began = time.perf_counter()
                    slow = case.name.startswith("unfinished run")  # trains on: 30 ms and more
                    own = random.Random(f"{seed} {kind.__name__} {number}")
                    seen, findings = fuzz(case, times // 4 if slow else times, own)
                    yield case, seen, findings, time.perf_counter() - began


def main() -> None:
    """Print a line for each kind of file, and all that was found."""
    import logging

    logging.getLogger("dmuh").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    times, seed = (int(text) for text in [*sys.argv[1:3], *("2000", "0")[len(sys.argv) - 1 :]])
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    failures: list[Finding] = []
    print(f"{'file':42} {'refused':>8} {'same':>8} {'wrong':>8} {'s':>6}")
    for case, seen, findings, seconds in run(times, seed, only):
        counts = seen["refused"], seen["same answer"], len(findings)
        print(f"{case.name:42} {counts[0]:8} {counts[1]:8} {counts[2]:8} {seconds:6.1f}", flush=True)
        for finding in findings[:5]:
            print(f"    {finding.damage}: {finding.what[:150]}")
        failures += findings
    print(f"{len(failures)} found" if failures else "nothing found")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
