"""What searches begin from: an image of the catalogue, or the code of an upload or a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmuh.catalogue import Catalogue, Row
from dmuh.catalogue.paths import named
from dmuh.codes import Codes
from dmuh.encoder.curve import Curve
from dmuh.errors import RequestError
from dmuh.index.soft import Ranking, choose_ranking
from dmuh.server.json_answers import CodeWriter, shown_path
from dmuh.server.stored_codes import StoredCodes

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
        return number_of(self.source.code if isinstance(self.source, Row) else self.source.bits[0].tobytes())

    @property
    def contents(self) -> int | None:
        """What identical images have in common, if that is known."""
        if isinstance(self.source, Row):
            return self.source.contents
        return None if self.source.contents is None else int(self.source.contents[0])


class Queries:
    """Finds what searches begin from in a catalogue.

    `match` has, by ranking, the probability that what is searched shares a label with an image by their distance, where
    that is known, and `match_of_texts` that it does with a text.
    """

    def __init__(
        self, catalogue: Catalogue, match: Mapping[str, Curve], match_of_texts: Mapping[str, Curve] | None = None
    ) -> None:
        self._catalogue = catalogue
        self._match, self._match_of_texts = match, match_of_texts or {}
        self._stored = StoredCodes(catalogue.n_bits, catalogue.worth)
        self._writer = CodeWriter(catalogue.n_bits, catalogue.worth)

    def of(self, searches: Sequence[Search]) -> list[Query | RequestError]:
        """Return what each search begins from, or why it cannot be answered."""
        found: dict[int, Query] = {}
        ids: dict[int, int] = {}
        for position, search in enumerate(searches):
            if search.code is not None:
                found[position] = self._of_code(search, search.code)
                continue
            id_ = search.id if search.path is None else self._id_of(search.path)
            if id_ is not None:
                ids[position] = id_
        rows = {row.id: row for row in self._catalogue.rows(ids.values())}
        for position, id_ in ids.items():
            if id_ in rows:
                ranking = searches[position].ranking or self._stored.ranking
                about = self._writer.image(rows[id_])
                found[position] = Query(rows[id_], ranking, about, self._match.get(ranking))
        return [_checked(search, found.get(position)) for position, search in enumerate(searches)]

    def codes(self, queries: Sequence[Query]) -> Codes:
        """Return the codes of queries; all are uploads or texts, or all of the catalogue. Ids are positions."""
        sent = [query.source for query in queries if isinstance(query.source, Codes)]
        if sent:
            return Codes.concatenated([one.with_ids([n]) for n, one in enumerate(sent)])
        return self._stored.codes([query.source for query in queries if isinstance(query.source, Row)])

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


def _checked(search: Search, query: Query | None) -> Query | RequestError:
    """Return what a search begins from, if it is there and what is asked about it is known."""
    if query is None:
        return RequestError(404, "there is no such image")
    if search.at_least is not None and query.match is None:
        return RequestError(422, _UNKNOWN)
    return query


def number_of(code: bytes) -> int:
    """Return a code as a whole number, of which the differing bits are counted fast."""
    return int.from_bytes(code, "little")
