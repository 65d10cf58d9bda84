"""MilvusIndex: the same search by Milvus, embedded in one file or on a server or cluster of its own.

Milvus takes over where one machine's memory ends. By Hamming distance it finds the same distances as `HammingIndex`;
among codes at the distance of the k-th it may choose others, since it knows no order between them. Softly it finds the
nearest by Hamming distance first, many more than are asked for, and these are put in their exact order here.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import InputError
from dmuh.index.base import (
    Among,
    Ids,
    IdsLike,
    Matches,
    Neighbourhoods,
    as_ids,
    check_new,
    check_present,
    check_radius,
    check_width,
    check_worth,
    chosen_ids,
)
from dmuh.index.milvus_collection import PAGE
from dmuh.index.milvus_loading import MilvusLoading
from dmuh.index.milvus_options import MilvusOptions
from dmuh.index.milvus_rows import having
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import Ranking, choose_ranking, pair_distances, shown

_RESULTS = 500_000  # per request, which bounds the size of a message
_QUERIES = 1_000  # per request, which bounds its time; Milvus takes 16,384 at most
_PER_ANSWER = 40  # codes that a soft search weighs per answer, or more if the shortlist is longer


class MilvusIndex(MilvusLoading):
    """Search over binary codes in a Milvus collection, which takes its width from the first codes added.

    `address` is milvus: and a file that ends in .db, which is searched in this process, or the URL of a server; behind
    a question mark it can have each option but `of`, such as milvus:http://host:19530?collection=birds&probes=64. Codes
    are stored in vectors of a multiple of 8 bits, the spare ones zero, with their levels of sureness and labels. No
    call takes much longer than `timeout` seconds. `of` is a word for what a new collection belongs to; a collection
    that belongs to something else is refused.

    `kind` is BIN_FLAT, which compares all codes, or BIN_IVF_FLAT, which compares those of the `probes` nearest of
    `lists` cells; if it is not given, what the collection has, and BIN_FLAT for a new one.

    `consistency` says what a search sees. session: all that was written by this index, and all that others wrote
    before it was opened; what others write later within about a second. Only the first search after a write waits,
    some tenths of a second. bounded: it never waits, and what was written in the last seconds, five by the servers'
    default, may be missing. strong: all that anyone wrote, and every search waits.

    A soft search weighs the nearest by Hamming distance: `shortlist` codes, or 40·k if that is more, 16,384 at most,
    which is all that Milvus gives. What it misses of the exact answer is in `benchmarks/milvus.py`: the more codes are
    equal, the more it is, so a large collection of few classes or short codes wants a longer one, which takes longer.
    """

    def __init__(
        self,
        address: str,
        *,
        collection: str = "dmuh",
        kind: str | None = None,
        lists: int = 1024,
        probes: int = 32,
        timeout: float = 30.0,
        of: str = "",
        shortlist: int = 4_000,
        consistency: str = "session",
    ) -> None:
        given = {"collection": collection, "kind": kind, "lists": lists, "probes": probes, "timeout": timeout}
        super().__init__(MilvusOptions.of(address, **given, shortlist=shortlist, consistency=consistency), of)

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added."""
        return None if self._layout is None else self._layout.n_bits

    @property
    def sure(self) -> int:
        """How many bits say how sure each bit is."""
        return 0 if self._layout is None else self._layout.sure

    @property
    def ids(self) -> Ids:
        """The ids in the index, ascending."""
        return self._all_ids()

    def known(self, ids: IdsLike) -> Ids:
        """Return which of these ids are in the index."""
        return self._known(as_ids(ids))

    def codes(self, ids: IdsLike) -> Codes:
        """Return the codes with these ids, each once, ascending; those that are not in the index are left out."""
        layout = self._layout
        if layout is None or not layout.weighs:
            raise InputError(f"the collection {self._name} holds no codes that can be read: fill one anew")
        rows = sorted(self._rows("id", as_ids(ids), ["id", "graded"]), key=lambda row: int(row["id"]))
        return layout.codes([int(row["id"]) for row in rows], [row["graded"] for row in rows])

    def identical(self, contents: NDArray[np.int64]) -> dict[int, list[int]]:
        """Return by their digest the ids of the images that have one of these digests (n,) of `Codes.contents`."""
        found: dict[int, list[int]] = {}
        if self._layout is not None and self._layout.weighs:
            for row in self._rows("contents", np.setdiff1d(contents, [0]), ["id", "contents"]):
                found.setdefault(int(row["contents"]), []).append(int(row["id"]))
        return found

    def add(self, codes: Codes, labels: Sequence[Sequence[str]] | None = None) -> "MilvusIndex":
        """Add codes, with the labels of each to search among; their ids must be new. Returns the index itself."""
        self._check(codes, labels)
        check_new(self.known(codes.ids))
        self._insert(codes, labels, np.arange(len(codes)))
        return self

    def add_missing(self, codes: Codes, labels: Sequence[Sequence[str]] | None = None) -> "MilvusIndex":
        """Add those of the codes whose ids are not in the index, as one that broke off needs it."""
        self._check(codes, labels)
        self._insert(codes, labels, np.flatnonzero(~np.isin(codes.ids, self.known(codes.ids))))
        return self

    def remove(self, ids: IdsLike) -> "MilvusIndex":
        """Remove codes by id; an id that is not there is an error and nothing is removed. Returns the index itself."""
        gone = as_ids(ids)
        check_present(np.setdiff1d(gone, self.known(gone)))
        self._delete(gone)
        return self

    def search(
        self,
        queries: Codes,
        k: int,
        *,
        among: Among | None = None,
        label: str | None = None,
        ranking: Ranking | None = None,
    ) -> Matches:
        """Return the k nearest codes of each query (all of them if there are fewer).

        among    leaves only some ids to be found: these ids, or a boolean mask over `ids`
        label    leaves those that have it
        ranking  hamming, or soft: the nearest of the shortlist by the expected number of differing bits; by default
                 soft where queries and collection allow it
        """
        if not 1 <= k <= PAGE:
            raise InputError(f"k must be at least 1 and, by Milvus, at most {PAGE}, got {k}")
        if self._chosen_ranking(ranking, queries) == "soft":
            return self._search_softly(queries, k, among, label)
        rows = _in_order(self._nearest(queries, k, {"nprobe": self._options.probes}, among, label), queries)
        width = min((len(row) for row in rows), default=0)
        found = np.array([row[:width] for row in rows], np.int64).reshape(len(queries), width, 2)
        return Matches(found[:, :, 0].astype(np.int32), found[:, :, 1])

    def within(
        self, queries: Codes, radius: float, *, among: Among | None = None, ranking: Ranking | None = "hamming"
    ) -> Neighbourhoods:
        """Return every code at Hamming distance ≤ radius of each query, nearest first; `among` as in `search`."""
        if ranking == "soft":
            raise InputError("Milvus finds all codes within a radius by ranking hamming alone, got soft")
        check_radius(radius)
        reach = math.floor(min(radius, queries.n_bits))
        # by cells Milvus stops at the first that have nothing so near, so that all are asked for and cut here
        parameters = {"nprobe": self._lists} | ({"radius": reach + 1} if self._kind == "BIN_FLAT" else {})
        ordered = _in_order(self._nearest(queries, PAGE, parameters, among, None), queries)
        rows = [[pair for pair in row if pair[0] <= reach] for row in ordered]
        if any(len(row) == PAGE for row in rows):
            raise InputError(
                f"more than {PAGE} codes lie within {radius}, which is all that Milvus gives: lower radius"
            )
        found = np.array([pair for row in rows for pair in row], np.int64).reshape(-1, 2)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        return Neighbourhoods(offsets.astype(np.int64), found[:, 0].astype(np.int32), found[:, 1])

    def _chosen_ranking(self, ranking: Ranking | None, queries: Codes) -> Ranking:
        """Return the ranking that is meant; a collection of an earlier version allows Hamming distance alone."""
        meant = choose_ranking(ranking, queries)
        if meant == "hamming" or self._layout is None or self._layout.weighs:
            return meant
        if ranking is None:
            return "hamming"
        raise InputError(
            f"the collection {self._name} of an earlier version has no levels of sureness: rank by hamming, or fill "
            "another collection"
        )

    def _search_softly(self, queries: Codes, k: int, among: Among | None, label: str | None) -> Matches:
        """Return the k nearest of each query's shortlist, by their soft distance."""
        most = min(PAGE, max(_PER_ANSWER * k, self._options.shortlist))
        lists = self._nearest(queries, most, {"nprobe": self._options.probes}, among, label, fields=("graded",))
        k = min([k, *map(len, lists)])
        distances, ids = np.empty((len(lists), k), np.int64), np.empty((len(lists), k), np.int64)
        turned_by = turns(queries, "soft")
        for row, hits in enumerate(lists):
            if k:
                assert self._layout is not None, "only a collection has hits"
                codes = self._layout.codes(list(hits), [hit["entity"]["graded"] for hit in hits.values()])
                away = pair_distances(queries[row], codes)[0]
                order = np.lexsort((shuffled(codes.ids) - turned_by[row], away))[:k]
                distances[row], ids[row] = away[order], codes.ids[order]
        return Matches(shown(distances), ids)

    def _nearest(
        self,
        queries: Codes,
        most: int,
        parameters: dict[str, int],
        among: Among | None,
        label: str | None,
        fields: Sequence[str] = (),
    ) -> list[dict[int, Any]]:
        """Return up to `most` hits for each query, by id, with these fields."""
        check_width(self.n_bits, queries)
        chosen = chosen_ids(among, self)
        if self._layout is None or not len(queries) or (chosen is not None and not len(chosen)):
            return [{} for _ in range(len(queries))]
        conditions = [] if label is None else [having(label)]
        conditions += [] if chosen is None else [f"id in {chosen.tolist()}"]
        found, step = [], max(1, min(_QUERIES, _RESULTS // most))
        for first in range(0, len(queries), step):
            with self._explained():
                found += self._client.search(
                    self._name,
                    [bits.tobytes() for bits in queries.bits[first : first + step]],
                    filter=" and ".join(conditions),
                    limit=most,
                    search_params={"metric_type": "HAMMING", "params": parameters},
                    anns_field="code",
                    output_fields=list(fields),
                    timeout=self._timeout,
                    **self._reading(search=True),
                )
        return [{int(hit["id"]): hit for hit in hits} for hits in found]

    def _check(self, codes: Codes, labels: Sequence[Sequence[str]] | None) -> None:
        check_width(self.n_bits, codes)
        if self._layout is not None and self._layout.weighs:
            check_worth(self._layout.worth, codes)
        if labels is not None and len(labels) != len(codes):
            raise InputError(f"labels must be as many as the codes, {len(codes)}, got {len(labels)}")


def _in_order(lists: Sequence[dict[int, Any]], queries: Codes) -> list[list[tuple[int, int]]]:
    """Return for each query the pairs (distance, id) of its hits, in their order; equal ones in that of the query."""
    rows = []
    for hits, turned_by in zip(lists, turns(queries, "hamming"), strict=True):
        ids = np.array(list(hits), np.int64)
        away = np.array([round(hit["distance"]) for hit in hits.values()], np.int64)
        order = np.lexsort((shuffled(ids) - turned_by, away))
        rows.append(list(zip(away[order].tolist(), ids[order].tolist(), strict=True)))
    return rows
