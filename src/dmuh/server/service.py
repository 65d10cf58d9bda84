"""Service: everything that can be done with a catalogue and its images, without HTTP.

Uploads are decoded in other processes. Of five threads beside the event loop one encodes images, one encodes texts, one
searches images, one searches sentences about them and one writes; each works on the items of concurrent requests
together. A change is first on the disk, then in the index, and then acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dmuh.catalogue import Catalogue, Row
from dmuh.catalogue.writer import Addition, Change, Deletion, Restoration, Writer
from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.encoder import Hasher
from dmuh.errors import InputError, RequestError
from dmuh.features import FolderFeatures
from dmuh.hashes import HashModel
from dmuh.images import Pixels
from dmuh.index import Searchable
from dmuh.server.batcher import Batcher
from dmuh.server.captions import ServedCaptions
from dmuh.server.class_codes import ClassCodes
from dmuh.server.duplicates import Duplicates
from dmuh.server.images.decoders import Decoders
from dmuh.server.images.files import ImageFile, ImageFiles, is_known
from dmuh.server.json_answers import CodeWriter, map_json
from dmuh.server.label_review import LabelReview
from dmuh.server.map.collection_map import CollectionMap
from dmuh.server.metrics import ServiceMetrics
from dmuh.server.queries import Search
from dmuh.server.searcher import Searcher
from dmuh.server.texts import ServedTexts

T = TypeVar("T")

_SAMPLED = 1024  # images of which the distribution of uncertainty is taken


class Service:
    """A catalogue that is searched and changed, the model that made its codes, and the files of its images.

    `features` gives the features of its folder, by which near duplicates and wrong labels are told, where there are.
    Files lie below `root`, some of an index in the folders `elsewhere`, those that came through a service in `added`.
    """

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
        by_class: ClassCodes | None = None,
        features: Callable[[], FolderFeatures] | None = None,
        elsewhere: Sequence[Path] = (),
    ) -> None:
        self._model = hasher.about
        self._no_uploads = hasher.refusal if isinstance(hasher, HashModel) else None
        self._sure = catalogue.sure or 0
        self._match = hasher.calibration.match_by_ranking(self._sure)
        self._texts = ServedTexts(hasher, self._sure, metrics.batches("encode"))
        self._captions = ServedCaptions(hasher, catalogue, metrics.batches("search"))
        self._catalogue = catalogue
        self._decoders = Decoders(hasher.preprocess, most_pixels)
        self._files = ImageFiles(root, added, self._decoders, elsewhere)
        self._summary: dict[str, Any] | None = None
        self._changes = 0
        self._map = CollectionMap(catalogue)
        self._review = LabelReview(catalogue, root, features)
        self._duplicates = Duplicates(catalogue, (root, added), features)
        self._searcher = Searcher(catalogue, whole, self._match, self._texts.match)
        self._writer = CodeWriter(catalogue.n_bits, catalogue.worth)
        self._changer = Writer(catalogue, added, self._update)

        def encode(pixels: list[Pixels]) -> list[Codes | Exception]:
            codes = hasher.encode_pixels(np.stack(pixels), self._sure)
            return [codes[row : row + 1] for row in range(len(codes))]

        self._encoding: Batcher[Pixels, Codes] = Batcher(
            "encode", encode, waiting=256, on_batch=metrics.batches("encode")
        )
        self._by_class = by_class
        self._encoding_class: Batcher[Pixels, Codes] | None = None
        if by_class is not None:
            self._encoding_class = Batcher(
                "encode-class", by_class.encode, waiting=256, on_batch=metrics.batches("encode")
            )
        self._searching: Batcher[Search, str] = Batcher("search", self._answer, on_batch=metrics.batches("search"))
        self._writing: Batcher[Change, int] = Batcher(
            "write", self._changer.write, waiting=256, must_finish=True, on_batch=metrics.batches("write")
        )
        self._reading = ThreadPoolExecutor(2, thread_name_prefix="dmuh-read")

    def __len__(self) -> int:
        return len(self._searcher)

    def close(self) -> None:
        """End the threads and the processes."""
        self._map.close()
        self._review.close()
        self._duplicates.close()
        self._decoders.close()
        self._files.close()
        for worker in (
            self._encoding, self._texts, self._encoding_class, self._writing, self._searching, self._captions
        ):  # fmt: skip
            if worker is not None:
                worker.close()
        self._changer.close()
        self._reading.shutdown()

    async def search(self, search: Search) -> str:
        """Return the answer to a search as JSON."""
        if search.by_class:
            self._of_classes()  # says that there are none, if so
        return await self._searching.submit(search)

    async def captions(self, search: Search) -> str:
        """Return the sentences about images of the collection that are nearest to an image, as JSON."""
        return await self._captions.search(search)

    def check_captions(self) -> None:
        """Raise if there are no sentences, before an upload is received for nothing."""
        self._captions.check()

    async def encode(self, content: bytes | bytearray, *, by_class: bool = False) -> Codes:
        """Return the code of an uploaded image, that by class if that is asked for."""
        self._check_uploads()
        _, pixels = await self._decoders.pixels(content)
        return await (self._of_classes() if by_class else self._encoding).submit(pixels)

    async def encode_text(self, text: str) -> Codes:
        """Return the code of a sentence."""
        return await self._texts.encode(text)

    def code(self, digits: str) -> Codes:
        """Return the code that hexadecimal digits stand for."""
        wanted = 2 * -(-self._catalogue.n_bits // 8)
        if len(digits) != wanted:
            raise RequestError(
                422, f"a code of {self._catalogue.n_bits} bits has {wanted} hexadecimal digits, got {len(digits)}"
            )
        try:
            return Codes.from_hex([digits], self._catalogue.n_bits)
        except InputError as error:
            raise RequestError(422, str(error)) from error

    async def add(self, content: bytes | bytearray, labels: Sequence[str], metadata: dict[str, str]) -> str:
        """Add an uploaded image; return it as JSON."""
        self._check_uploads()
        kind, pixels = await self._decoders.pixels(content)
        code = await self._encoding.submit(pixels)
        of_class = None if self._by_class is None else await self._of_classes().submit(pixels)
        id_ = await self._writing.submit(Addition(content, kind.suffix, code, labels, metadata))
        if self._by_class is not None and of_class is not None:
            row = await self._read(lambda: self._row(id_))
            thread = self._searching.thread
            await asyncio.get_running_loop().run_in_executor(thread, self._by_class.add, row, of_class)
        return await self.image(id_)

    async def delete(self, id_: int) -> None:
        """Delete an image from the catalogue, with its file if it was added through the service."""
        await self._writing.submit(Deletion(id_))

    async def restore(self, id_: int) -> str:
        """Bring back an image that was deleted a short time ago; return it as JSON."""
        return await self.image(await self._writing.submit(Restoration(id_)))

    async def image(self, id_: int) -> str:
        """Return an image as JSON."""
        return self._json(await self._read(lambda: self._row(id_)))

    async def images(self, order: str, n: int, offset: int, label: str | None, seed: int | None = None) -> str:
        """Return images as JSON: the least sure first, by id, or at random, the same for the same seed."""
        if order == "random":
            rows = await self._read(lambda: self._catalogue.sample(n, label, seed))
        else:
            rows = await self._read(lambda: self._catalogue.listed(order, n, offset, label))
        return f'{{"images":[{",".join(self._json(row) for row in rows)}]}}'

    async def some_images(self, ids: Sequence[int]) -> str:
        """Return those of the images that are there as JSON, in the given order."""
        rows = {row.id: row for row in await self._read(lambda: self._catalogue.rows(ids))}
        return f'{{"images":[{",".join(self._json(rows[id_]) for id_ in dict.fromkeys(ids) if id_ in rows)}]}}'

    async def file(self, id_: int) -> ImageFile:
        """Return the file of an image, open."""
        return await self._files.open(await self._read(lambda: self._row(id_)))

    async def picture(self, id_: int, known: str = "") -> ImageFile | tuple[str, bytes | None]:
        """Return the file of an image, open, if browsers show it; else as `thumbnail` does a larger picture of it."""
        file = await self.file(id_)
        if file.is_shown:
            return file
        file.close()
        return file.tag, None if is_known(file.tag, known) else await self._files.picture(file)

    async def thumbnail(self, id_: int, known: str = "") -> tuple[str, bytes | None]:
        """Return the tag of an image, and a small picture of it, a WebP file; None if its tag is among those known."""
        return await self._files.thumbnail(await self._read(lambda: self._row(id_)), known)

    async def map(self) -> str:
        """Return where each image lies on a map as JSON; it is computed when it is first asked for."""
        return await self._read(
            lambda: map_json(*self._map.places(), self._catalogue.outline(), self._catalogue.labels())
        )

    async def duplicates(self, n: int, offset: int) -> str:
        """Return groups of images that are the same, or nearly so, as JSON."""
        return await self._read(lambda: self._duplicates.page(n, offset, self._json))

    async def suspects(self, n: int, offset: int, decided: bool) -> str:
        """Return images whose labels are probably wrong as JSON: those to be decided on, or those that are decided."""
        return await self._read(lambda: self._review.page(n, offset, decided, self._json))

    async def decide(self, id_: int, decision: str) -> None:
        """Keep what a person said of the labels of an image: accept, skip, or undo."""
        await self._read(lambda: self._review.decide(id_, decision))

    async def decisions(self) -> str:
        """Return what was decided as a CSV list."""
        return await self._read(self._review.decisions_list)

    async def about(self) -> dict[str, Any]:
        """Return what is served: the model, the labels, what is known of its codes, how sure the images are."""
        summary, changes = self._summary, self._changes
        if summary is None:
            summary = await self._read(self._summarise)
            if changes == self._changes:  # else it may be outdated already
                self._summary = summary
        return summary | {"images": len(self), "no_captions": self._captions.refusal}

    def _summarise(self) -> dict[str, Any]:
        rows = self._catalogue.sample(_SAMPLED, seed=0)
        return {
            "method": self._model["method"],
            "backbone": self._model["backbone"],
            "n_bits": self._catalogue.n_bits,
            "sure": self._sure,
            "ranking": "soft" if self._sure else "hamming",
            "match_known": bool(self._match),
            "by_class": self._by_class is not None,
            "no_uploads": self._no_uploads,
            "no_texts": self._texts.refusal,
            "labels": self._catalogue.labels(),
            "uncertainty_percentiles": uncertainty_percentiles(
                [row.uncertainty for row in rows if row.uncertainty is not None]
            ),
        }

    def _check_uploads(self) -> None:
        """Raise if there is no model that encodes images."""
        if self._no_uploads is not None:
            raise RequestError(422, self._no_uploads)

    def _of_classes(self) -> Batcher[Pixels, Codes]:
        """Return what encodes images by class."""
        if self._encoding_class is None:
            raise RequestError(
                422, "there are no codes by class here: they are made of a folder whose folders are classes"
            )
        return self._encoding_class

    def _answer(self, searches: list[Search]) -> list[str | Exception]:
        """Return the answers to searches, by look and by class."""
        results: dict[int, str | Exception] = {}
        for by_class in (False, True):
            chosen = [n for n, search in enumerate(searches) if search.by_class == by_class]
            if chosen:
                searcher = self._by_class.searcher if by_class and self._by_class else self._searcher
                results.update(zip(chosen, searcher.answer([searches[n] for n in chosen]), strict=True))
        return [results[n] for n in range(len(searches))]

    def _update(self, new: Sequence[Codes], gone: Sequence[Row], labels: set[str]) -> None:
        """Apply changes to the indexes, in the thread that searches, before they are acknowledged."""
        self._searching.thread.submit(self._searcher.update, new, gone, labels).result()
        if self._by_class is not None:
            self._searching.thread.submit(self._by_class.follow, new, gone).result()
        self._captions.follow(new, gone)
        self._changes += 1
        self._summary = None

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    def _json(self, row: Row) -> str:
        return f"{{{self._writer.image(row)}}}"

    def _row(self, id_: int) -> Row:
        row = self._catalogue.row(id_)
        if row is None:
            raise RequestError(404, f"there is no image {id_}")
        return row
