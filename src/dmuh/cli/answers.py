"""The answers of `dmuh search`: what an index finds, the same image first, with how likely each shares a label."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.curve import Curve
from dmuh.errors import ConfigError
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import RANKINGS, Ranking, pair_distances, shown

if TYPE_CHECKING:
    from dmuh.catalogue import Catalogue
    from dmuh.index import HammingIndex, MilvusIndex


@dataclass(frozen=True)
class Asked:
    """What is asked of a search: the k nearest, or all within a radius, by a ranking, that probably share a label."""

    k: int
    radius: float | None
    ranking: Ranking | None
    at_least: float | None

    def __post_init__(self) -> None:
        if self.ranking not in (None, *RANKINGS):
            raise ConfigError(f"--ranking must be soft or hamming, got {self.ranking}")

    def check(self, calibration: Calibration) -> None:
        """Raise if answers are to be left out by a probability that the model does not know."""
        if self.at_least is not None and not calibration.match:
            raise ConfigError(
                "this model does not know how likely images at a distance share a label, as it was trained without "
                "labels or by an earlier version: leave out --at-least"
            )


@dataclass(frozen=True)
class Answer:
    """One image that was found, with its distance to the query by the ranking, and by differing bits.

    match      the probability that it shares a label with the query, None if that is not known
    identical  whether it is the same image as the query
    """

    id: int
    distance: float
    hamming: int
    match: float | None
    identical: bool


@dataclass(frozen=True)
class Answers:
    """What was found for one query; `best` is the largest probability there was, where answers were left out by it."""

    found: list[Answer]
    best: float | None


@dataclass(frozen=True)
class Stored:
    """The codes that are searched.

    sure       bits of sureness per bit
    codes      gives those with some ids, in ascending order
    identical  gives by their digest the ids of images with one of these contents (n,)
    """

    sure: int
    codes: Callable[[list[int]], Codes]
    identical: Callable[[NDArray[np.int64]], dict[int, list[int]]]

    @classmethod
    def in_catalogue(cls, catalogue: "Catalogue") -> "Stored":
        """Return those of a collection, of which only what is asked for is read."""

        def identical(contents: NDArray[np.int64]) -> dict[int, list[int]]:
            return {content: catalogue.identical(content, most=None) for content in contents.tolist()}

        return cls(catalogue.sure or 0, catalogue.some_codes, identical)


def find(
    index: "HammingIndex | MilvusIndex", stored: Stored, queries: Codes, asked: Asked, calibration: Calibration
) -> list[Answers]:
    """Return the answers to each query: images that are the same as the query first, then the nearest."""
    ranking, nearest = _nearest(index, queries, asked)
    most = asked.k if asked.radius is None else None
    twins = _twins(stored, queries, ranking)
    ids = [[*same, *(id_ for id_ in found if id_ not in same)] for same, found in zip(twins, nearest, strict=True)]
    ids = [row[:most] for row in ids]
    if ranking == "hamming" and all(set(row) <= set(found) for row, found in zip(ids, nearest, strict=True)):
        known = [{id_: (away, int(away)) for id_, away in found.items()} for found in nearest]
    else:
        known = _weighed(stored, queries, ids, ranking)
    match = calibration.match_by_ranking(stored.sure).get(ranking)
    return [
        _judged([Answer(id_, *away[id_], None, id_ in same) for id_ in row], asked, match)
        for row, away, same in zip(ids, known, twins, strict=True)
    ]


def _nearest(
    index: "HammingIndex | MilvusIndex", queries: Codes, asked: Asked
) -> tuple[Ranking, list[dict[int, float]]]:
    """Return the ranking that was used, and what is found for each query: distances by id, the nearest first."""
    if asked.radius is None:
        found = index.search(queries, asked.k, ranking=asked.ranking)
        distances: NDArray[Any] = found.distances
        rows = zip(found.ids.tolist(), distances.tolist(), strict=True)
        near = [dict(zip(ids, away, strict=True)) for ids, away in rows]
    else:
        within = index.within(queries, asked.radius, ranking=asked.ranking or "hamming")
        distances = within.distances
        every = list(zip(within.ids.tolist(), distances.tolist(), strict=True))
        near = [dict(every[begin:end]) for begin, end in itertools.pairwise(within.offsets.tolist())]
    return "soft" if distances.dtype.kind == "f" else "hamming", near


def _twins(stored: Stored, queries: Codes, ranking: Ranking) -> list[list[int]]:
    """Return for each query the ids of the images that are the same, in the order of its ties."""
    if queries.contents is None:
        return [[] for _ in range(len(queries))]
    same = stored.identical(queries.contents)
    found = [np.array(same.get(content, []), np.int64) for content in queries.contents.tolist()]
    turned_by = turns(queries, ranking)
    return [ids[np.argsort(shuffled(ids) - turn)].tolist() for ids, turn in zip(found, turned_by, strict=True)]


def _weighed(
    stored: Stored, queries: Codes, ids: list[list[int]], ranking: Ranking
) -> list[dict[int, tuple[float, int]]]:
    """Return the distance of each query to the codes with its ids by the ranking, and in differing bits, by id."""
    codes = stored.codes(sorted({id_ for row in ids for id_ in row}))  # their ids ascend
    weighed = []
    for row, query in zip(ids, queries, strict=True):
        own = codes[np.searchsorted(codes.ids, np.array(row, np.int64))]
        differing = np.bitwise_count(own.bits ^ query.bits).sum(axis=1, dtype=np.int64)
        away: NDArray[Any] = shown(pair_distances(query, own))[0] if ranking == "soft" else differing
        weighed.append(dict(zip(row, zip(away.tolist(), differing.tolist(), strict=True), strict=True)))
    return weighed


def _judged(found: list[Answer], asked: Asked, match: Curve | None) -> Answers:
    """Return the answers with the probability that they share a label; those of less than is asked for are left out."""
    if match is None:
        return Answers(found, None)
    judged = [replace(answer, match=1.0 if answer.identical else float(match(answer.distance))) for answer in found]
    if asked.at_least is None:
        return Answers(judged, None)
    probabilities = [answer.match for answer in judged if answer.match is not None]
    kept = [answer for answer in judged if answer.match is not None and answer.match >= asked.at_least]
    return Answers(kept, max(probabilities, default=0.0))
