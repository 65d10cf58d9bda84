"""ServedCaptions: images are answered in words, where the collection of a service has sentences about its images."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from dmuh.catalogue import Catalogue, Row
from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.encoder.captions import Captions, no_captions, read_captions, write_captions
from dmuh.errors import DmuhError, FormatError, RequestError
from dmuh.index import HammingIndex
from dmuh.server.batcher import Batcher
from dmuh.server.json_answers import answer_json, caption_json, match_json, rounded
from dmuh.server.queries import Queries, Query, Search, number_of

log = logging.getLogger(__name__)

_NAMED = 200  # images of a sentence that an answer names


class CaptionSearcher:
    """Finds the sentences nearest to images; those whose images are all deleted are left out."""

    def __init__(self, captions: Captions, catalogue: Catalogue) -> None:
        self._captions = captions
        self._queries = Queries(catalogue, captions.by.match_by_ranking(catalogue.sure or 0))
        self._index = HammingIndex().add(captions.codes)
        self._numbers = [number_of(bits.tobytes()) for bits in captions.codes.bits]
        self._deleted: set[int] = set()
        self._of_image: dict[int, list[int]] = defaultdict(list)  # positions of the sentences about it
        for position, ids in enumerate(captions.images):
            for id_ in ids:
                self._of_image[id_].append(position)

    def answer(self, searches: Sequence[Search]) -> list[str | Exception]:
        """Return the answers as JSON."""
        return [
            query if isinstance(query, RequestError) else self._answer(search, query)
            for search, query in zip(searches, self._queries.of(searches), strict=True)
        ]

    def update(self, back: Iterable[int], gone: Iterable[int]) -> None:
        """Leave out the sentences of images that are gone; those of images that came back return."""
        back, gone = set(back), set(gone)
        self._deleted = (self._deleted | (gone & self._of_image.keys())) - back
        touched = {position for id_ in back | gone for position in self._of_image.get(id_, ())}
        there = {position for position in touched if self._images(position)}
        known = set(self._index.ids.tolist())
        if there - known:
            self._index.add(self._captions.codes[sorted(there - known)])
        self._index.remove(sorted((touched - there) & known))

    def _images(self, position: int) -> list[int]:
        """Return the images that a sentence is about, without those that are deleted."""
        return [id_ for id_ in self._captions.images[position] if id_ not in self._deleted]

    def _answer(self, search: Search, query: Query) -> str:
        """Return the nearest sentences, those that are likely enough, as JSON."""
        found = self._index.search(self._queries.codes([query]), search.k, ranking=query.ranking)
        distances = found.distances[0] if query.ranking == "hamming" else rounded(found.distances[0])
        matches = [None] * len(distances) if query.match is None else rounded(query.match(distances)).tolist()
        texts = [
            caption_json(
                self._captions.sentences[position],
                self._images(position)[:_NAMED],
                match_json(distance, (query.number ^ self._numbers[position]).bit_count(), match),
            )
            for position, distance, match in zip(found.ids[0].tolist(), distances.tolist(), matches, strict=True)
            if search.at_least is None or (match or 0) >= search.at_least
        ]
        best = max((match for match in matches if match is not None), default=None)
        return answer_json(query.about, query.ranking, "texts", texts, len(matches) - len(texts), best)


class ServedCaptions:
    """Answers images of concurrent requests in words, in a thread of its own, which first reads the sentences.

    refusal  why there are none here, as far as it is known; None if there are
    """

    def __init__(self, hasher: Hasher, catalogue: Catalogue, on_batch: Callable[[int], None]) -> None:
        self._hasher, self._catalogue = hasher, catalogue
        self.refusal = no_captions(catalogue, hasher)
        self._searcher: CaptionSearcher | None = None
        self._searching: Batcher[Search, str] = Batcher("captions", self._answer, on_batch=on_batch)
        if self.refusal is None:
            self._searching.thread.submit(self._read)

    async def search(self, search: Search) -> str:
        """Return the sentences nearest to an image as JSON, once they are read."""
        self.check()
        return await self._searching.submit(search)

    def check(self) -> None:
        """Raise if there are no sentences."""
        if self.refusal is not None:
            raise RequestError(422, self.refusal)

    def follow(self, new: Sequence[Codes], gone: Sequence[Row]) -> None:
        """Let the sentences about images go, and come back, with them, before what is asked from now on."""
        back = [id_ for codes in new for id_ in codes.ids.tolist()]
        self._searching.thread.submit(self._update, back, [row.id for row in gone])

    def close(self) -> None:
        """End the thread."""
        self._searching.close()

    def _read(self) -> None:
        """Read the sentences, encode those whose codes are not kept, and keep these."""
        try:
            captions = read_captions(self._catalogue, self._hasher)
            self._searcher = CaptionSearcher(captions, self._catalogue)
            if not captions.kept:
                write_captions(captions, self._catalogue, self._hasher)
        except (DmuhError, OSError) as error:  # images are served all the same
            log.warning("captions: %s", error)
            hidden = isinstance(error, FormatError | OSError)  # which says where files are
            why = "the file of their codes cannot be read, which the log of the service explains" if hidden else error
            if self._searcher is None:
                self.refusal = f"captions cannot be searched here: {why}"

    def _update(self, back: Sequence[int], gone: Sequence[int]) -> None:
        if self._searcher is not None:
            self._searcher.update(back, gone)

    def _answer(self, searches: list[Search]) -> Sequence[str | Exception]:
        if self._searcher is None:
            return [RequestError(422, self.refusal or "captions could not be read")] * len(searches)
        return self._searcher.answer(searches)
