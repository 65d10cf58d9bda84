"""Services for tests: in this process, or as a process of their own."""

import asyncio
import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from dmuh import Hasher
from dmuh.catalogue import Catalogue, StateFolder, remove_outdated
from dmuh.collection import Collection
from dmuh.collection.serving import serve_collection
from dmuh.encoder.adding import add_images
from dmuh.images import BadImages, Preprocess, Reading
from dmuh.server.api.app import create_app
from dmuh.server.images.decoders import Decoders
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics
from dmuh.server.milvus_mirror import MilvusMirror
from dmuh.server.service import Service
from processes import Command


@contextmanager
def client_of(
    hasher: Hasher,
    root: Path,
    folder: Path,
    engine: str | None = None,
    sure: int | None = None,
    features=None,
    **limits,
) -> Iterator[TestClient]:
    """Serve the images of a folder in this process; Milvus searches if an address of it is given.

    `features` gives the features of the folder, as `dmuh open` has them.
    """
    state = StateFolder(folder)
    with state.open(hasher) as catalogue:
        add_new(catalogue, root, hasher, sure)
        whole = None if engine is None else MilvusMirror(engine, catalogue)
        try:
            with _asked(hasher, catalogue, root, state, limits, whole=whole, features=features) as client:
                yield client
        finally:
            if whole is not None:
                whole.close()


@contextmanager
def client_of_index(hasher: Hasher, index: Path, folder: Path | None = None) -> Iterator[TestClient]:
    """Serve an index in this process; a copy of it if another folder is given."""
    state = StateFolder(folder or index)
    with state.open(hasher) as catalogue:
        root = serve_collection(catalogue, Collection(index), hasher)
        with _asked(hasher, catalogue, root, state, {}) as client:
            yield client


@contextmanager
def _asked(
    hasher: Hasher, catalogue: Catalogue, root: Path, state: StateFolder, limits: dict, **options
) -> Iterator[TestClient]:
    own = Limits(**{"seconds": 600, **limits})  # a busy machine decides no test
    metrics = ServiceMetrics()
    with closing(
        Service(hasher, catalogue, root, state.added, most_pixels=own.pixels, metrics=metrics, **options)
    ) as service:
        app = create_app(service, own, metrics)
        with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
            yield client


def add_new(catalogue: Catalogue, root: Path, hasher: Hasher, sure: int | None = None) -> tuple[list[str], BadImages]:
    """Bring a catalogue up to date with a folder; return the paths of the new images, and those that are broken."""
    reading = Reading(on_bad_image="skip")
    new = remove_outdated(catalogue, root)
    add_images(catalogue, root, new, hasher, reading, sure)
    return [str(image.path) for image in new], reading.bad


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(file.name for file in folder.iterdir())


def decoded(preprocess: Preprocess, contents: Sequence[bytes], most_pixels: int = 1_000_000) -> list:
    """Decode uploads in processes, sixteen at a time; each gives its type and pixels, or why it is refused."""

    async def decode() -> list:
        results = []
        for first in range(0, len(contents), 16):
            some = [decoders.pixels(content) for content in contents[first : first + 16]]
            results += await asyncio.gather(*some, return_exceptions=True)
        return results

    with closing(Decoders(preprocess, most_pixels)) as decoders:
        return asyncio.run(decode())


class Server:
    """A service as a process of its own, forked where it is not said to start afresh."""

    def __init__(self, *arguments: object, by: str = "serve", afresh: bool = False) -> None:
        words = [by, *map(str, arguments), "--port", "0"]
        self.process = started_afresh(*words) if afresh else Command(*words)
        self.line = self.process.stdout.readline()
        assert " at http" in self.line, self.process.communicate()[1]
        self.address = self.line.split(" at ")[1].split()[0]

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=120)  # it ends a compilation of kernels that it has begun


def started_afresh(*words: str) -> subprocess.Popen:
    """Start a dmuh command as a shell does."""
    command = [sys.executable, "-m", "dmuh.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def picture(kind: str = "PNG", size: tuple[int, int] = (28, 28), seed: int = 0) -> bytes:
    """An image file of noise."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()
