"""Searcher: the search indexes over a catalogue, and answers as JSON. All of it runs in one thread."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dmuh.catalogue import Catalogue, Row, kept_index
from dmuh.codes import Codes
from dmuh.encoder.curve import Curve
from dmuh.errors import RequestError
from dmuh.index import HammingIndex, Searchable
from dmuh.index.base import Labelled, Searches
from dmuh.index.kernel_use import KERNELS
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import Ranking
from dmuh.server.garbage import leave_to_stay
from dmuh.server.json_answers import CodeWriter, answer_json, match_json, rounded
from dmuh.server.queries import Queries, Query, Search, number_of
from dmuh.server.stored_codes import StoredCodes

_LABELS = 64  # labels with an index of their images, the least recently used is dropped
_FRAGMENTS = 16_384  # images whose JSON is cached, half a kilobyte each


class Known(NamedTuple):
    """What answers say of an image of the catalogue, and its code as a whole number."""

    about: str
    number: int


class Found(NamedTuple):
    """One image that was found, with its distance as answers show it."""

    id: int
    distance: float
    match: float | None  # probability that it shares a label with the query, if that is known
    identical: bool = False


class Searcher:
    """Answers searches, and takes changes of the catalogue into its indexes.

    `whole` is an index over the whole catalogue, where it shall not be one in memory; one that knows the labels is
    asked for those of a label too. `match` has, by ranking, the probability that two images share a label by their
    distance, where that is known, and `match_of_texts` that of a text and an image.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        whole: Searchable | None = None,
        match: Mapping[str, Curve] | None = None,
        match_of_texts: Mapping[str, Curve] | None = None,
    ) -> None:
        worth = catalogue.worth
        self._catalogue = catalogue
        self._stored, self._writer = StoredCodes(catalogue.n_bits, worth), CodeWriter(catalogue.n_bits, worth)
        self._queries = Queries(catalogue, match or {}, match_of_texts)
        self._whole: Searchable = kept_index(catalogue, catalogue.index_file) if whole is None else whole
        self._by_label: OrderedDict[str, Searchable] = OrderedDict()
        self._fragments: OrderedDict[int, Known] = OrderedDict()  # a row never changes, and no id returns
        KERNELS.prepare(then=leave_to_stay)  # numpy answers until they are compiled

    def __len__(self) -> int:
        return len(self._whole)

    def answer(self, searches: list[Search]) -> list[str | Exception]:
        """Return the answers as JSON; those with the same label, k and ranking take one pass together."""
        results: dict[int, str | Exception] = {}
        queries: dict[int, Query] = {}
        groups: dict[tuple[str | None, int, Ranking, bool, Curve | None], list[int]] = defaultdict(list)
        for position, query in enumerate(self._queries.of(searches)):
            if isinstance(query, RequestError):
                results[position] = query
                continue
            search, stored = searches[position], query.id is not None
            queries[position] = query
            # an image of the catalogue finds itself too, which is left out
            groups[search.label, search.k + stored, query.ranking, stored, query.match].append(position)
        for (label, k, ranking, *_), positions in groups.items():
            found = self._found([queries[position] for position in positions], k, ranking, label)
            known = self._known({image.id for images in found for image in images})
            for position, images in zip(positions, found, strict=True):
                results[position] = _answer(searches[position], queries[position], images, known)
        return [results[position] for position in range(len(searches))]

    def update(self, new: Sequence[Codes], gone: Sequence[Row], labels: set[str]) -> None:
        """Apply additions and removals to the indexes; `labels` are those of the added images."""
        for codes in new:
            self._whole.add(codes)
        if gone:
            self._whole.remove([row.id for row in gone])
        for label in labels | {label for row in gone for label in json.loads(row.labels)}:
            self._by_label.pop(label, None)  # built again by the next search with this label

    def _found(self, queries: list[Query], k: int, ranking: Ranking, label: str | None) -> list[list[Found]]:
        """Return the images nearest to each query, identical ones first; all are uploads, or all of the catalogue."""
        codes = self._queries.codes(queries)
        matches = self._labelled(label).search(codes, k, ranking=ranking)
        curve = queries[0].match  # of all of them
        likely = np.full(matches.ids.shape, None) if curve is None else rounded(curve(matches.distances))
        distances = matches.distances if ranking == "hamming" else rounded(matches.distances)
        found = []
        for n, query in enumerate(queries):
            near = map(Found, matches.ids[n].tolist(), distances[n].tolist(), likely[n].tolist())
            same = self._identical(query, codes, n, label)[:k]
            ids = {image.id for image in same}
            found.append([*same, *(image for image in near if image.id not in ids)] if same else list(near))
        return found

    def _identical(self, query: Query, codes: Codes, n: int, label: str | None) -> list[Found]:
        """Return the images that are the same as the query, whose code is the nth; these share its labels."""
        if query.contents is None:
            return []
        ids = np.array([id_ for id_ in self._catalogue.identical(query.contents, label) if id_ != query.id], np.int64)
        row = self._catalogue.row(int(ids[0])) if len(ids) else None
        if row is None:  # or it was deleted a moment ago
            return []
        distance = rounded(np.array(self._stored.distance(codes[n], row, query.ranking)))
        shown = int(distance) if query.ranking == "hamming" else float(distance)
        sure = None if query.match is None else 1.0
        ordered = ids[np.argsort(shuffled(ids) - turns(codes[n], query.ranking))]
        return [Found(id_, shown, sure, identical=True) for id_ in ordered.tolist()]

    def _known(self, ids: set[int]) -> dict[int, Known]:
        """Return what answers say of images, by id; those that are not cached are read together."""
        known = {id_: self._fragments[id_] for id_ in ids if id_ in self._fragments}
        rows = self._catalogue.rows(ids - known.keys())
        read = {row.id: Known(self._writer.image(row), number_of(row.code)) for row in rows}
        self._fragments.update(read)
        while len(self._fragments) > _FRAGMENTS:
            self._fragments.popitem(last=False)
        return known | read

    def _labelled(self, label: str | None) -> Searches:
        """Return the index of all images, or of those with a label."""
        if label is None:
            return self._whole
        if isinstance(self._whole, Labelled):
            return self._whole.of_label(label)
        if label not in self._by_label:
            self._by_label[label] = HammingIndex().add(self._catalogue.codes(label))
            if len(self._by_label) > _LABELS:
                self._by_label.popitem(last=False)
        self._by_label.move_to_end(label)
        return self._by_label[label]


def _answer(search: Search, query: Query, images: list[Found], known: dict[int, Known]) -> str:
    """Return an answer as JSON: identical images, and of the k nearest those within the radius, if likely enough."""
    reach = np.inf if search.radius is None else search.radius
    near = [image for image in images if image.identical or (image.id != query.id and image.distance <= reach)]
    near = [image for image in near if image.id in known][: search.k]  # others were deleted a moment ago
    number = query.number
    matches = [
        f"{{{match_json(image.distance, (number ^ own.number).bit_count(), image.match)},"
        f'"identical":{"true" if image.identical else "false"},{own.about}}}'
        for image in near
        if (own := known[image.id]) and (search.at_least is None or (image.match or 0) >= search.at_least)
    ]
    best = max((image.match for image in near if image.match is not None), default=None)
    return answer_json(query.about, query.ranking, "matches", matches, len(near) - len(matches), best)
