"""Searcher: the search indexes over a catalogue, and answers as JSON. All of it runs in one thread."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmuh.catalogue import Catalogue, Row
from dmuh.catalogue.paths import named
from dmuh.codes import Codes
from dmuh.errors import RequestError
from dmuh.index import HammingIndex, Searchable
from dmuh.index.kernel_use import KERNELS
from dmuh.server.json_answers import code_json, image_json, shown_path

_LABELS = 64  # labels with an index of their images, the least recently used is dropped
_FRAGMENTS = 16_384  # images whose JSON is cached, half a kilobyte each


@dataclass(frozen=True)
class Search:
    """A search for up to `k` images: from an image of the catalogue, by its id or path, or from a code.

    radius  the distance up to which images count
    label   that they must have
    """

    k: int = 10
    radius: int | None = None
    label: str | None = None
    id: int | None = None
    path: str | None = None
    code: Codes | None = None


class Query(NamedTuple):
    """The code that a search begins from, what is known of it as JSON, and its id if it is in the catalogue."""

    code: bytes
    about: str
    id: int | None


class Searcher:
    """Answers searches, and takes changes of the catalogue into its indexes.

    `whole` is an index over the whole catalogue, where it shall not be one in memory.
    """

    def __init__(self, catalogue: Catalogue, whole: Searchable | None = None) -> None:
        self._catalogue = catalogue
        self._n_bits = catalogue.n_bits
        self._whole: Searchable = HammingIndex().add(catalogue.codes()) if whole is None else whole
        self._by_label: OrderedDict[str, Searchable] = OrderedDict()
        self._fragments: dict[int, str] = {}  # a row never changes, and no id returns
        KERNELS.prepare()  # numpy answers until they are compiled

    def __len__(self) -> int:
        return len(self._whole)

    def answer(self, searches: list[Search]) -> list[str | Exception]:
        """Return the answers as JSON; those with the same label and k take one pass together."""
        results: list[str | Exception] = [RequestError(404, "there is no such image")] * len(searches)
        queries = self._queries(searches)
        groups: dict[tuple[str | None, int], list[int]] = defaultdict(list)
        for position, query in queries.items():
            # an image of the catalogue finds itself too, which is left out
            groups[searches[position].label, searches[position].k + (query.id is not None)].append(position)
        for (label, k), positions in groups.items():
            packed = np.frombuffer(b"".join([queries[position].code for position in positions]), np.uint8)
            codes = Codes(packed.reshape(len(positions), -1), self._n_bits)
            matches = self._labelled(label).search(codes, k)
            found = list(zip(matches.distances.tolist(), matches.ids.tolist(), strict=True))
            fragments = self._known({id_ for _, ids in found for id_ in ids})
            for position, (distances, ids) in zip(positions, found, strict=True):
                results[position] = self._json(searches[position], queries[position], distances, ids, fragments)
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
                queries[position] = self._query_of(search.code)
                continue
            id_ = search.id if search.path is None else self._id_of(search.path)
            if id_ is not None:
                ids[position] = id_
        rows = {row.id: row for row in self._catalogue.rows(ids.values())}
        for position, id_ in ids.items():
            if id_ in rows:
                queries[position] = Query(rows[id_].code, image_json(rows[id_], self._n_bits), id_)
        return queries

    def _query_of(self, code: Codes) -> Query:
        unsure, bits = code.image_uncertainty, None if code.uncertainty is None else code.uncertainty[0]
        packed = code.bits[0].tobytes()
        about = code_json(packed, self._n_bits, None if unsure is None else float(unsure[0]), bits)
        return Query(packed, about, None)

    def _id_of(self, path: str) -> int | None:
        """Return the id of the image with a path, as answers show it; the path is compared, never opened."""
        found = self._catalogue.id_of(path, added=False)
        prefix = shown_path("", added=True)
        if found is None and path.startswith(prefix):
            found = self._catalogue.id_of(path.removeprefix(prefix), added=True)
        if found is None and named(path) != path:
            found = self._catalogue.id_of(named(path), added=False)
        return found

    def _json(
        self, search: Search, query: Query, distances: list[int], ids: list[int], fragments: dict[int, str]
    ) -> str:
        reach = self._n_bits if search.radius is None else search.radius
        matches: list[str] = []
        for distance, id_ in zip(distances, ids, strict=True):
            if id_ == query.id or distance > reach or len(matches) == search.k:
                continue
            if id_ in fragments:  # else it was deleted a moment ago
                matches.append(f'{{"distance":{distance},{fragments[id_]}}}')
        return f'{{"query":{{{query.about}}},"matches":[{",".join(matches)}]}}'

    def _known(self, ids: set[int]) -> dict[int, str]:
        """Return images as JSON, by id; those that are not cached are read together."""
        known = {id_: self._fragments[id_] for id_ in ids if id_ in self._fragments}
        read = {row.id: image_json(row, self._n_bits) for row in self._catalogue.rows(ids - known.keys())}
        self._fragments |= read
        while len(self._fragments) > _FRAGMENTS:
            del self._fragments[next(iter(self._fragments))]
        return known | read

    def _labelled(self, label: str | None) -> Searchable:
        """Return the index of all images, or of those with a label."""
        if label is None:
            return self._whole
        if label not in self._by_label:
            self._by_label[label] = HammingIndex().add(self._catalogue.codes(label))
            if len(self._by_label) > _LABELS:
                self._by_label.popitem(last=False)
        self._by_label.move_to_end(label)
        return self._by_label[label]
