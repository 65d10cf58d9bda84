"""Searcher: the search indexes over a catalogue, and answers as JSON. All of it runs in one thread."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmuh.catalogue import Catalogue, Row, kept_index
from dmuh.catalogue.paths import named
from dmuh.codes import Codes
from dmuh.encoder.curve import Curve
from dmuh.errors import RequestError
from dmuh.index import HammingIndex, Searchable
from dmuh.index.base import Labelled, Searches
from dmuh.index.kernel_use import KERNELS
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import Ranking, choose_ranking
from dmuh.server.garbage import leave_to_stay
from dmuh.server.json_answers import CodeWriter, match_json, rounded, shown_path
from dmuh.server.stored_codes import StoredCodes

_LABELS = 64  # labels with an index of their images, the least recently used is dropped
_FRAGMENTS = 16_384  # images whose JSON is cached, half a kilobyte each
_UNKNOWN = "at_least cannot be used: it is not known how often images share a label, as this model was not calibrated"


@dataclass(frozen=True)
class Search:
    """A search for up to `k` images: from an image of the catalogue, by its id or path, or from a code.

    text      the sentence whose code it is
    radius    the distance up to which images count
    label     that they must have
    ranking   soft or hamming; None: soft where it is known how sure the bits are that it begins from
    at_least  the probability of sharing a label with the query below which images are left out
    by_class  whether codes by class are searched, in a service that has them
    """

    k: int = 10
    radius: float | None = None
    label: str | None = None
    id: int | None = None
    path: str | None = None
    code: Codes | None = None
    text: str | None = None
    ranking: Ranking | None = None
    at_least: float | None = None
    by_class: bool = False


class Query(NamedTuple):
    """What a search begins from: the code of an upload or text, or an image of the catalogue; what is said of it."""

    source: Codes | Row
    ranking: Ranking
    about: str
    match: Curve | None = None  # the probability that an image shares a label with it, by its distance

    @property
    def id(self) -> int | None:
        """Its id if it is in the catalogue."""
        return self.source.id if isinstance(self.source, Row) else None

    @property
    def number(self) -> int:
        """The code as a whole number."""
        return _number(self.source.code if isinstance(self.source, Row) else self.source.bits[0].tobytes())

    @property
    def contents(self) -> int | None:
        """What identical images have in common, if that is known."""
        if isinstance(self.source, Row):
            return self.source.contents
        return None if self.source.contents is None else int(self.source.contents[0])


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
        self._match, self._match_of_texts = match or {}, match_of_texts or {}
        self._whole: Searchable = kept_index(catalogue, catalogue.index_file) if whole is None else whole
        self._by_label: OrderedDict[str, Searchable] = OrderedDict()
        self._fragments: OrderedDict[int, Known] = OrderedDict()  # a row never changes, and no id returns
        KERNELS.prepare(then=leave_to_stay)  # numpy answers until they are compiled

    def __len__(self) -> int:
        return len(self._whole)

    def answer(self, searches: list[Search]) -> list[str | Exception]:
        """Return the answers as JSON; those with the same label, k and ranking take one pass together."""
        results: list[str | Exception] = [RequestError(404, "there is no such image")] * len(searches)
        queries = self._queries(searches)
        groups: dict[tuple[str | None, int, Ranking, bool, Curve | None], list[int]] = defaultdict(list)
        for position, query in queries.items():
            search, stored = searches[position], query.id is not None
            if search.at_least is not None and query.match is None:
                results[position] = RequestError(422, _UNKNOWN)
                continue
            # an image of the catalogue finds itself too, which is left out
            groups[search.label, search.k + stored, query.ranking, stored, query.match].append(position)
        for (label, k, ranking, *_), positions in groups.items():
            found = self._found([queries[position] for position in positions], k, ranking, label)
            known = self._known({image.id for images in found for image in images})
            for position, images in zip(positions, found, strict=True):
                results[position] = _answer(searches[position], queries[position], images, known)
        return results

    def update(self, new: Sequence[Codes], gone: Sequence[Row], labels: set[str]) -> None:
        """Apply additions and removals to the indexes; `labels` are those of the added images."""
        for codes in new:
            self._whole.add(codes)
        if gone:
            self._whole.remove([row.id for row in gone])
        for label in labels | {label for row in gone for label in json.loads(row.labels)}:
            self._by_label.pop(label, None)  # built again by the next search with this label

    def _queries(self, searches: list[Search]) -> dict[int, Query]:
        """Return what each search begins from, by its position; images that are not in the catalogue are left out."""
        queries: dict[int, Query] = {}
        ids: dict[int, int] = {}
        for position, search in enumerate(searches):
            if search.code is not None:
                queries[position] = self._of_code(search, search.code)
                continue
            id_ = search.id if search.path is None else self._id_of(search.path)
            if id_ is not None:
                ids[position] = id_
        rows = {row.id: row for row in self._catalogue.rows(ids.values())}
        for position, id_ in ids.items():
            if id_ in rows:
                ranking = searches[position].ranking or self._stored.ranking
                about = self._writer.image(rows[id_])
                queries[position] = Query(rows[id_], ranking, about, self._match.get(ranking))
        return queries

    def _of_code(self, search: Search, code: Codes) -> Query:
        """Return the query of an upload, or of a text."""
        ranking = choose_ranking(search.ranking, code)
        match = self._match if search.text is None else self._match_of_texts
        return Query(code, ranking, self._writer.sent(code, search.text), match.get(ranking))

    def _id_of(self, path: str) -> int | None:
        """Return the id of the image with a path, as answers show it; the path is compared, never opened."""
        found = self._catalogue.id_of(path, added=False)
        prefix = shown_path("", added=True)
        if found is None and path.startswith(prefix):
            found = self._catalogue.id_of(path.removeprefix(prefix), added=True)
        if found is None and named(path) != path:
            found = self._catalogue.id_of(named(path), added=False)
        return found

    def _found(self, queries: list[Query], k: int, ranking: Ranking, label: str | None) -> list[list[Found]]:
        """Return the images nearest to each query, identical ones first; all are uploads, or all of the catalogue."""
        uploads = [query.source for query in queries if isinstance(query.source, Codes)]
        rows = [query.source for query in queries if isinstance(query.source, Row)]
        codes = Codes.concatenated([one.with_ids([n]) for n, one in enumerate(uploads)]) if uploads else None
        codes = self._stored.codes(rows) if codes is None else codes
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
        read = {row.id: Known(self._writer.image(row), _number(row.code)) for row in rows}
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
        f"{{{match_json(image.distance, (number ^ own.number).bit_count(), image.match, identical=image.identical)},"
        f"{own.about}}}"
        for image in near
        if (own := known[image.id]) and (search.at_least is None or (image.match or 0) >= search.at_least)
    ]
    best = max((image.match for image in near if image.match is not None), default=None)
    return (
        f'{{"query":{{{query.about}}},"ranking":"{query.ranking}","matches":[{",".join(matches)}],'
        f'"left_out":{len(near) - len(matches)},"best":{"null" if best is None else best}}}'
    )


def _number(code: bytes) -> int:
    return int.from_bytes(code, "little")
