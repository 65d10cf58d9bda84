"""Service: what can be asked of a catalogue, without anything of HTTP.

Uploads are decoded by processes of their own. Three threads beside the event loop: one encodes, one searches, one
writes. Each works on what has come for it together, so that concurrent requests share a pass. A change is first on the
disk, then in the index, then acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dmuh.catalogue import Catalogue, Row
from dmuh.catalogue.writer import Addition, Change, Deletion, Writer
from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.encoder import Hasher
from dmuh.errors import RequestError
from dmuh.images import Pixels
from dmuh.index import Searchable
from dmuh.server.batcher import Batcher
from dmuh.server.images.decoders import Decoders
from dmuh.server.images.files import ImageFile, ImageFiles
from dmuh.server.images.upload_check import Kind
from dmuh.server.json_answers import image_json
from dmuh.server.metrics import ServiceMetrics
from dmuh.server.searcher import Search, Searcher

T = TypeVar("T")

_SAMPLED = 1024  # images that say what is much uncertainty


class Service:
    """A catalogue that is searched and changed, the model that made its codes, and the files of its images."""

    def __init__(
        self,
        hasher: Hasher,
        catalogue: Catalogue,
        root: Path,
        added: Path,
        *,
        most_pixels: int,
        metrics: ServiceMetrics,
        whole: Searchable | None = None,
    ) -> None:
        self._model = hasher.about
        self._catalogue = catalogue
        self._decoders = Decoders(hasher.preprocess, most_pixels)
        self._pictures = ImageFiles(root, added, self._decoders)
        self._summary: dict[str, Any] | None = None
        self._changes = 0
        self._searcher = Searcher(catalogue, whole)
        writer = Writer(catalogue, added, self._update)

        def encode(pixels: list[Pixels]) -> list[Codes | Exception]:
            codes = hasher.encode_pixels(np.stack(pixels))
            return [codes[row : row + 1] for row in range(len(codes))]

        self._encoding: Batcher[Pixels, Codes] = Batcher("encode", encode, waiting=256, seen=metrics.batches("encode"))
        self._searching: Batcher[Search, str] = Batcher("search", self._searcher.answer, seen=metrics.batches("search"))
        self._writing: Batcher[Change, int] = Batcher(
            "write", writer.write, waiting=256, lasts=True, seen=metrics.batches("write")
        )
        self._reading = ThreadPoolExecutor(2, thread_name_prefix="dmuh-read")

    def __len__(self) -> int:
        return len(self._searcher)

    def close(self) -> None:
        """End the threads and the processes."""
        self._decoders.close()
        self._pictures.close()
        for worker in (self._encoding, self._writing, self._searching):
            worker.close()
        self._reading.shutdown()

    async def search(self, search: Search) -> str:
        """Return the answer to a search as JSON."""
        return await self._searching.ask(search)

    async def encode(self, content: bytes | bytearray) -> tuple[Kind, Codes]:
        """Return the type and the code of an uploaded image."""
        kind, pixels = await self._decoders.pixels(content)
        return kind, await self._encoding.ask(pixels)

    async def add(self, content: bytes | bytearray, labels: Sequence[str], metadata: dict[str, str]) -> str:
        """Keep an uploaded image; return what is known of it as JSON."""
        kind, code = await self.encode(content)
        return await self.image(await self._writing.ask(Addition(content, kind.suffix, code, labels, metadata)))

    async def delete(self, id_: int) -> None:
        """Delete an image from the catalogue, with its file if it was added through the service."""
        await self._writing.ask(Deletion(id_))

    async def image(self, id_: int) -> str:
        """Return what is known of an image as JSON."""
        return self._json(await self._read(lambda: self._row(id_)))

    async def images(self, order: str, n: int, offset: int, label: str | None) -> str:
        """Return images as JSON: the least certain first, by id, or at random."""
        if order == "random":
            rows = await self._read(lambda: self._catalogue.sample(n, label))
        else:
            rows = await self._read(lambda: self._catalogue.listed(order, n, offset, label))
        return f'{{"images":[{",".join(self._json(row) for row in rows)}]}}'

    async def file(self, id_: int) -> ImageFile:
        """Return the file of an image, open."""
        return await self._pictures.open(await self._read(lambda: self._row(id_)))

    async def thumbnail(self, id_: int, known: str = "") -> tuple[str, bytes | None]:
        """Return the tag of an image, and a small picture of it, a WebP file; None if its tag is among those known."""
        return await self._pictures.thumbnail(await self._read(lambda: self._row(id_)), known)

    async def about(self) -> dict[str, Any]:
        """Return what is served: the model, the labels, and from where on a bit's uncertainty is much."""
        summary, changes = self._summary, self._changes
        if summary is None:
            summary = await self._read(self._summarise)
            if changes == self._changes:  # else it may be of before
                self._summary = summary
        return summary | {"images": len(self)}

    def _summarise(self) -> dict[str, Any]:
        rows = self._catalogue.sample(_SAMPLED, seed=0)
        unsure = b"".join(row.bit_uncertainty for row in rows if row.bit_uncertainty is not None)
        return {
            "method": self._model["method"],
            "backbone": self._model["backbone"],
            "n_bits": self._catalogue.n_bits,
            "labels": self._catalogue.labels(),
            "uncertainty_percentiles": uncertainty_percentiles(
                [row.uncertainty for row in rows if row.uncertainty is not None]
            ),
            "high_bit_uncertainty": float(np.quantile(np.frombuffer(unsure, np.float32), 0.95)) if unsure else None,
        }

    def _update(self, new: Sequence[Codes], gone: Sequence[Row], labels: set[str]) -> None:
        """Take up changes, in the thread that searches: none is acknowledged before it can be found."""
        self._searching.thread.submit(self._searcher.update, new, gone, labels).result()
        self._changes += 1
        self._summary = None

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    def _json(self, row: Row) -> str:
        return f"{{{image_json(row, self._catalogue.n_bits)}}}"

    def _row(self, id_: int) -> Row:
        row = self._catalogue.row(id_)
        if row is None:
            raise RequestError(404, f"there is no image {id_}")
        return row
