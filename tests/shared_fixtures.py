"""What tests of several files use."""

import os
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image, ImageDraw

from dmuh import Hasher, configure, train
from dmuh.bench import read_grid
from dmuh.bench.cells import run_cell
from dmuh.bench.results import write_results
from dmuh.datasets import Dataset, one_hot
from dmuh.datasets.mnist5k import load_mnist5k
from dmuh.encoder import export_run
from dmuh.index import MilvusIndex
from dmuh.runs import Run
from extras import needs
from milvus_server import ADDRESS, CANNOT, SERVED, Server
from once import made_once

# The networks of the tests are tiny: one thread is as fast, and does not fight with other processes.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# What a shell starts in the background ignores Ctrl-C, and so would the processes that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine decides no test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Activations are kept apart from the user's own, also by processes that tests start."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMUH_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    return load_mnist5k()


@pytest.fixture(scope="session")
def digits(mnist: Dataset) -> Dataset:
    """Sixty images of each of four digits: a real data set that trains in seconds."""
    positions = np.concatenate([np.flatnonzero(mnist.labels[:, k])[:60] for k in (0, 1, 4, 7)])
    return Dataset("mnist5k", mnist.images[positions], mnist.labels[positions][:, [0, 1, 4, 7]], ("0", "1", "4", "7"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, mnist: Dataset) -> Path:
    """A folder of twenty images in two classes, as a user has it on disk."""
    root = tmp_path_factory.mktemp("photos")
    for name, digit in (("ones", 1), ("zeros", 0)):
        (root / name).mkdir()
        for n, position in enumerate(np.flatnonzero(mnist.labels[:, digit])[:10]):
            Image.fromarray(mnist.images[position]).resize((40, 48)).save(root / name / f"{n:02}.png")
    return root


@pytest.fixture(scope="session")
def shapes() -> Dataset:
    """Twenty-four pictures of 80 pixels in colour: discs, and boxes, before a coarse background."""
    rng = np.random.default_rng(0)
    pictures = []
    for n in range(24):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
        background = coarse.resize((80, 80), Image.Resampling.BICUBIC)
        left, top, side = rng.integers(0, 40, 3).tolist()
        draw = ImageDraw.Draw(background)
        shape = draw.ellipse if n % 2 else draw.rectangle
        shape((left, top, left + 30 + side // 2, top + 30 + side // 2), fill=tuple(rng.integers(0, 256, 3).tolist()))
        pictures.append(np.asarray(background))
    return Dataset("folder", np.stack(pictures), one_hot(np.arange(24) % 2), ("box", "disc"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """`shared_folder(name, make)`: a copy of its own of a folder that one of the workers fills by `make(folder)`."""

    own = tmp_path_factory.getbasetemp()
    root = own.parent if hasattr(request.config, "workerinput") else own

    def copied(name: str, make: Callable[[Path], object]) -> Path:
        made = made_once(root, f"once-{name}", make)
        return shutil.copytree(made, tmp_path_factory.mktemp(name) / "copy")

    return copied


def trained(settings: dict[str, object], dataset: Dataset) -> Callable[[Path], object]:
    """What trains a network and exports it, as its first use does."""
    return lambda folder: Hasher.load(train(configure(settings), folder / "run", dataset=dataset).path)


@pytest.fixture(scope="session")
def digit_run(digits: Dataset, shared_folder: Callable[..., Path]) -> Run:
    """A network for digits, trained from scratch."""
    settings = {"epochs": 2, "bits": 20, "query": 5, "train": 16, "image_size": 16, "batch_size": 24}
    return Run(shared_folder("digits", trained(settings, digits)) / "run")


@pytest.fixture(scope="session")
def digit_hasher(digit_run: Run) -> Hasher:
    return Hasher.load(digit_run.path)


@pytest.fixture(scope="session")
def shape_run(shapes: Dataset, shared_folder: Callable[..., Path]) -> Run:
    """A hash layer above EfficientNet-Lite0 as it was learned elsewhere."""
    settings = {"dataset": "folder", "epochs": 2, "bits": 16, "image_size": 64, "batch_size": 8, "augment": "crop"}
    settings["uncertainty"] = "copy"
    return Run(shared_folder("shapes", trained(settings, shapes)) / "run")


@pytest.fixture(scope="session")
def shape_hasher(shape_run: Run) -> Hasher:
    return Hasher.load(shape_run.path)


COLOURS = {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 220)}
SENTENCES = ("a {} {}", "there is one {} {}", "a picture of a {} {}", "we see the {} {}")


def _coloured(folder: Path) -> None:
    """Write pictures of discs and boxes in three colours, by colour, a list with a sentence about each, and a model."""
    rng = np.random.default_rng(0)
    rows = ["path,label,caption"]
    for n in range(96):
        colour, shape = list(COLOURS)[n % 3], ("circle", "square")[n // 3 % 2]
        picture = Image.new("RGB", (64, 64), tuple(rng.integers(200, 256, 3).tolist()))
        left, top, side = *rng.integers(4, 24, 2).tolist(), int(rng.integers(24, 36))
        pen = ImageDraw.Draw(picture)
        draw = pen.ellipse if shape == "circle" else pen.rectangle
        draw((left, top, left + side, top + side), fill=COLOURS[colour])
        path = f"pictures/{colour}/{shape}-{n:02}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        picture.save(folder / path)
        rows.append(f"{path},{colour} {shape},{SENTENCES[n // 6 % 4].format(colour, shape)}")
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    settings = {"method": "dmuh-x", "texts": "caption", "text_encoder": "words", "bits": 24, "epochs": 40}
    settings |= {"dataset": "csv", "data": str(folder / "list.csv")}
    train(configure(settings | {"image_size": 64, "batch_size": 16, "query": 3, "train": 12}), folder / "run")
    export_run(folder / "run", folder / "model")


@pytest.fixture(scope="session")
def coloured(shared_folder: Callable[..., Path]) -> Path:
    """Pictures of coloured shapes with a list of captions, and a model for images and texts, as a run and an export."""
    return shared_folder("coloured", _coloured)


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of feature vectors in three clusters, which trains in no time."""
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(0)
    classes = np.arange(120) % 3
    np.save(folder / "features.npy", (rng.normal(size=(3, 16))[classes] + rng.normal(size=(120, 16))).astype("f4"))
    np.save(folder / "labels.npy", classes)
    return folder


GRID = """
[settings]
dataset = "features"
data = "{vectors}"
batch_size = 16
epochs = 3
bits = 8

[methods.dmuh]
uncertainty = "copy"

[[table]]
name = "methods"
title = "Methods & more"
published = "cifar10"
method = ["dmuh", "csq", "itq"]
bits = [8, 12]
seed = [0, 1]

[[table]]
name = "ablations"
method = ["dmuh", "dmuh-no-u"]

[[table]]
name = "curves"
method = ["dmuh", "itq"]

[[table]]
name = "limits"
clip = 0.0
lr = [0.1, 1e3]

[[table]]
name = "certainty"
study = true
dataset = "mnist5k"
data = ""
method = ["dmuh", "csq"]
train = 20
tuning = 0.6
validation = 0.0
image_size = 16
"""


@pytest.fixture(scope="session")
def bench(vectors: Path, shared_folder: Callable[..., Path]) -> Path:
    """A small experiment, made in this process: 15 runs on vectors, one that goes wrong, and 2 studied on digits."""

    def make(folder: Path) -> None:
        (folder / "grid.toml").write_text(GRID.format(vectors=vectors))
        grid = read_grid(folder / "grid.toml", {})
        for cell in grid.cells:
            run_cell(cell, folder / "small" / "runs" / cell.name, threads=1)
        write_results(grid, folder / "small")

    return shared_folder("bench", make) / "small"


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server | None]:
    """The server of Milvus, where this is the run beside one; else None."""
    if not SERVED:
        yield None
        return
    server = Server(tmp_path_factory.mktemp("milvus"))
    try:
        server.start()
    except (OSError, RuntimeError, TimeoutError) as error:
        pytest.exit(f"the server does not start: {error}", CANNOT)
    yield server
    server.stop()


@pytest.fixture
def milvus_address(milvus_server: Server | None, tmp_path: Path) -> str:
    """The address of that server, else of a file."""
    needs("milvus-lite", "milvus", "milvus_lite")
    return ADDRESS if milvus_server else f"milvus:{tmp_path / 'codes.db'}"


@pytest.fixture
def opened_milvus(milvus_address: str) -> Iterator[Callable[..., MilvusIndex]]:
    """A function that opens a collection, which is this test's alone, again, with options."""
    made: list[MilvusIndex] = []
    name = f"test_{uuid.uuid4().hex}"

    def open_index(**options: Any) -> MilvusIndex:
        made.append(MilvusIndex(milvus_address, **{"collection": name, **options}))
        return made[-1]

    yield open_index
    for index in made:
        index.close()
