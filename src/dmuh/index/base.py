"""What every index has in common: its interface, the results of a search, and the checks of what it is given."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes, pandas_table
from dmuh.errors import DtypeError, InputError
from dmuh.index.soft import Ranking, distance_text

Ids = NDArray[np.int64]
IdsLike = NDArray[Any] | Sequence[int]
Distances = NDArray[np.int32] | NDArray[np.float32]
Among = IdsLike | NDArray[np.bool_]

_MOST_QUERIES, _MOST_RANKS = 20, 10  # that a notebook shows


@dataclass(frozen=True, eq=False)
class Matches:
    """The k nearest codes of each query, nearest first, equal distances in a shuffled order of the query's own.

    distances  int32 (queries, k) Hamming distances, or float32 (queries, k) by soft ranking: expected numbers of
               differing bits
    ids        int64 (queries, k)

    Matches are indexed, sliced and iterated over by query, and every part of them is Matches again. A notebook shows
    them as a table; `dmuh.show_matches` shows the images.

    >>> codes = dmuh.Codes.from_outputs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> matches = dmuh.HammingIndex().add(codes).search(codes[:2], k=2)
    >>> matches
    Matches(2 queries × 2 nearest)
    >>> matches[1].ids
    array([[1, 0]])
    >>> [one.distances[0].tolist() for one in matches]
    [[0, 1], [0, 1]]
    """

    distances: Distances
    ids: Ids

    def __len__(self) -> int:
        """How many queries there are."""
        return len(self.ids)

    def __getitem__(self, rows: SupportsIndex | slice | NDArray[Any] | Sequence[int]) -> "Matches":
        """Return the matches of some queries: a position, a slice, positions or a boolean mask."""
        if isinstance(rows, SupportsIndex) and not isinstance(rows, np.ndarray):
            rows = [operator.index(rows)]
        return Matches(self.distances[rows], self.ids[rows])

    def __iter__(self) -> Iterator["Matches"]:
        """Yield the matches of each query by itself."""
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        queries = "query" if len(self) == 1 else "queries"
        return f"Matches({len(self):,} {queries} × {self.ids.shape[1]:,} nearest)"

    def _repr_html_(self) -> str:
        """Return a table for a notebook: one row per query with its nearest ids, and their distances below them."""
        ranks = range(min(self.ids.shape[1], _MOST_RANKS))
        head = "".join(f"<th>{rank + 1}</th>" for rank in ranks)
        rows = [
            f"<tr><th>{query}</th>"
            + "".join(f"<td>{ids[rank]}<br><small>{distance_text(distances[rank])}</small></td>" for rank in ranks)
            + "</tr>"
            for query, (ids, distances) in enumerate(
                zip(self.ids[:_MOST_QUERIES].tolist(), self.distances[:_MOST_QUERIES].tolist(), strict=True)
            )
        ]
        table = f"<table><tr><th>query</th>{head}</tr>{''.join(rows)}</table>"
        return f"<p>{self!r}: id, and distance below it</p>{table}"

    def to_pandas(self) -> Any:
        """Return a pandas table of one row per match: position of the query, rank from 1, id and distance.

        >>> codes = dmuh.Codes.from_outputs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
        >>> dmuh.HammingIndex().add(codes).search(codes[:1], k=2).to_pandas()
           query  rank  id  distance
        0      0     1   0         0
        1      0     2   1         1
        """
        queries, k = self.ids.shape
        return pandas_table(
            {
                "query": np.repeat(np.arange(queries), k),
                "rank": np.tile(np.arange(1, k + 1), queries),
                "id": self.ids.ravel(),
                "distance": self.distances.ravel(),
            }
        )


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """All codes within a radius of each query; those of query i stand at offsets[i]:offsets[i + 1].

    offsets    int64 (queries + 1,)
    distances  int32 (n,) Hamming distances, or float32 (n,) by soft ranking
    ids        int64 (n,), nearest first for each query, equal distances in a shuffled order of its own
    """

    offsets: Ids
    distances: Distances
    ids: Ids


class Searches(Protocol):
    """Codes that can be searched."""

    def search(self, queries: Codes, k: int, /, *, ranking: Ranking | None = None) -> Matches:
        """Return the k nearest codes of each query, nearest first; `ranking` by default as the queries allow it."""


class Searchable(Searches, Protocol):
    """Codes that can be added to, removed from and searched: all that the service needs of an index."""

    def __len__(self) -> int: ...

    def add(self, codes: Codes, /) -> Any:
        """Add codes; their ids must be new."""

    def remove(self, ids: Sequence[int], /) -> Any:
        """Remove codes by id."""


@runtime_checkable
class Labelled(Protocol):
    """Codes whose labels are known, so that those of one label can be searched."""

    def of_label(self, label: str, /) -> Searches:
        """Return the codes that have a label."""


class Index(Searchable, Protocol):
    """The whole interface, of `HammingIndex` and `MilvusIndex` alike."""

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added."""

    @property
    def ids(self) -> Ids:
        """The ids in the index, ascending."""

    def search(
        self, queries: Codes, k: int, /, *, among: Among | None = None, ranking: Ranking | None = None
    ) -> Matches:
        """Return the k nearest codes of each query (all of them if there are fewer).

        `among` leaves only some ids to be found: these ids, or a boolean mask over `ids`.
        """

    def within(
        self, queries: Codes, radius: float, /, *, among: Among | None = None, ranking: Ranking | None = "hamming"
    ) -> Neighbourhoods:
        """Return every code at distance ≤ radius of each query, nearest first."""


def as_ids(ids: IdsLike) -> Ids:
    """Return ids as an array, each once, ascending."""
    array = np.unique(np.asarray(ids))
    if array.size and array.dtype.kind not in "iu":
        raise DtypeError(f"ids must be whole numbers, got {array.dtype}")
    return array.astype(np.int64)


def chosen_ids(among: Among | None, index: Index) -> Ids | None:
    """Return the ids that `among` leaves to be found, ascending, or None: all."""
    if among is None:
        return None
    array = np.asarray(among)
    if array.dtype != np.bool_:
        return as_ids(array)
    ids = index.ids
    if array.shape != ids.shape:
        raise InputError(f"a mask must have one entry for each of the {len(ids)} ids, got shape {array.shape}")
    chosen: Ids = ids[array]
    return chosen


def check_width(n_bits: int | None, codes: Codes) -> None:
    """Raise unless the codes have the length of those in the index; an index that never had any takes all."""
    if n_bits is not None and codes.n_bits != n_bits:
        raise InputError(f"the index holds {n_bits}-bit codes, got {codes.n_bits}-bit ones")


def check_worth(worth: NDArray[np.float32] | None, codes: Codes) -> None:
    """Raise unless the codes' levels are as many as those in the index, and worth the same (n_bits, levels)."""
    known = 0 if worth is None else int(worth.shape[1]).bit_length() - 1
    if codes.sure != known:
        raise InputError(f"the index holds codes with {known} bits of sureness per bit, got codes with {codes.sure}")
    if worth is not None and codes.worth is not None and not np.array_equal(worth, codes.worth):
        raise InputError("the codes' levels of sureness are worth something else than those in the index: make it anew")


def check_radius(radius: float) -> None:
    """Raise unless the radius is a distance."""
    if not radius >= 0:
        raise InputError(f"radius must be at least 0, got {radius}")


def check_new(known: Ids) -> None:
    """Raise if any of the ids that are to be added is known already."""
    if len(known):
        raise InputError(f"id {known.min()} is in the index already ({len(known)} such ids): remove it first")


def check_present(missing: Ids) -> None:
    """Raise if any of the ids that are to be removed is missing."""
    if len(missing):
        raise InputError(f"id {missing[0]} is not in the index ({len(missing)} such ids)")
