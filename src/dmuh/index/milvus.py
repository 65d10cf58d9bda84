"""MilvusIndex: the same search by Milvus, embedded in one file or on a server or cluster of its own.

Milvus takes over where one machine's memory ends. It finds the same distances as `HammingIndex`; among codes at the
distance of the k-th it may choose others, since it knows no order between them.
"""

import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import ConfigError, DataError, EngineError, InputError, MissingExtraError
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
    chosen_ids,
)
from dmuh.index.shuffle import shuffled
from dmuh.index.soft import Ranking

Result = TypeVar("Result")
_KINDS = ("BIN_FLAT", "BIN_IVF_FLAT")
_MOST = 16_384  # results per query, by Milvus's own limit
_ROWS = 10_000  # codes that are sent together to a server, and ids that are read together from it
_FILE_ROWS = 1_000  # the same for a file, where the time for n codes grows as n²
_RESULTS = 500_000  # per request, which bounds the size of a message
_IDS = 5_000  # ids that are named in one expression
_LABELS, _LABEL_LENGTH = 64, 256  # labels per image at most, and bytes per label
_CALM = {"grpc.keepalive_time_ms": 3_600_000}  # the embedded engine ends connections that often check whether it lives
_ABOUT = re.compile(r"dmuh codes of (\d+) bits(?: of (\w+))?")


class MilvusIndex:
    """Search over binary codes in a Milvus collection, which takes its width from the first codes added.

    `address` is milvus: and a file that ends in .db, which is searched in this process, or the URL of a server. Codes
    are stored in vectors of a multiple of 8 bits, the spare ones zero. `kind` is BIN_FLAT, which compares all codes, or
    BIN_IVF_FLAT, which compares those of the `probes` nearest of `lists` cells, for a new collection. What was added or
    removed counts from the next search on. No call takes much longer than `timeout` seconds. `of` is a word for
    what a new collection belongs to; a collection that belongs to something else is refused.
    """

    def __init__(
        self,
        address: str,
        *,
        collection: str = "dmuh",
        kind: str = "BIN_FLAT",
        lists: int = 1024,
        probes: int = 32,
        timeout: float = 30.0,
        of: str = "",
    ) -> None:
        if kind not in _KINDS:
            raise ConfigError(f"the kind of a Milvus index must be {' or '.join(_KINDS)}, got {kind}")
        self._where = address.removeprefix("milvus:")
        self._served = re.match(r"https?://", self._where) is not None
        if not self._served:
            if Path(self._where).suffix != ".db":
                raise ConfigError(f"a Milvus index is milvus:FILE.db or milvus:http://HOST:PORT, got {address}")
            if kind != "BIN_FLAT":
                raise ConfigError(f"the Milvus of one file has BIN_FLAT alone: {kind} needs a server")
            Path(self._where).absolute().parent.mkdir(parents=True, exist_ok=True)
        self._name, self._of = collection, of
        self._kind, self._lists, self._probes = kind, lists, probes
        self._timeout = timeout
        try:
            import grpc
            import pymilvus
        except ModuleNotFoundError as error:
            raise MissingExtraError("a Milvus index", "milvus") from error
        self._library = pymilvus
        self._failures = (pymilvus.MilvusException, grpc.RpcError, OSError, RuntimeError)
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what it reports beside is raised too, as a sentence
        with self._explained():
            self._client = self._retried(
                lambda: pymilvus.MilvusClient(self._where, timeout=timeout, grpc_options={} if self._served else _CALM)
            )
            self._n_bits = self._width()
            if self._n_bits is not None:
                self._make_ready()

    def __len__(self) -> int:
        if self._n_bits is None:
            return 0
        with self._explained():
            found = self._client.query(self._name, "", ["count(*)"], timeout=self._timeout)
        return int(found[0]["count(*)"])

    @property
    def n_bits(self) -> int | None:
        """Length of the codes, None while nothing was ever added."""
        return self._n_bits

    @property
    def ids(self) -> Ids:
        """The ids in the index, ascending."""
        found: list[int] = []
        if self._n_bits is not None:
            with self._explained():
                pages = self._client.query_iterator(
                    self._name, batch_size=_ROWS, output_fields=["id"], timeout=self._timeout
                )
                while rows := pages.next():
                    found += [row["id"] for row in rows]
                pages.close()
        return np.sort(np.asarray(found, np.int64))

    def known(self, ids: IdsLike) -> Ids:
        """Return which of these ids are in the index."""
        wanted, found = as_ids(ids), [np.empty(0, np.int64)]
        if len(self):
            for first in range(0, len(wanted), _IDS):
                condition = f"id in {wanted[first : first + _IDS].tolist()}"
                with self._explained():
                    rows = self._client.query(self._name, condition, ["id"], timeout=self._timeout)
                found.append(np.array([row["id"] for row in rows], np.int64))
        return np.concatenate(found)

    def add(self, codes: Codes, labels: Sequence[Sequence[str]] | None = None) -> "MilvusIndex":
        """Add codes, with the labels of each to search among; their ids must be new. Returns the index itself."""
        self._check(codes, labels)
        check_new(self.known(codes.ids))
        return self._insert(codes, labels, np.arange(len(codes)))

    def add_missing(self, codes: Codes, labels: Sequence[Sequence[str]] | None = None) -> "MilvusIndex":
        """Add those of the codes whose ids are not in the index, as one that broke off needs it."""
        self._check(codes, labels)
        return self._insert(codes, labels, np.flatnonzero(~np.isin(codes.ids, self.known(codes.ids))))

    def remove(self, ids: IdsLike) -> "MilvusIndex":
        """Remove codes by id; an id that is not there is an error and nothing is removed. Returns the index itself."""
        gone = as_ids(ids)
        check_present(np.setdiff1d(gone, self.known(gone)))
        for first in range(0, len(gone), _IDS):
            with self._explained():
                self._client.delete(self._name, ids=gone[first : first + _IDS].tolist(), timeout=self._timeout)
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
        """Return the k nearest codes of each query by Hamming distance (all of them if there are fewer).

        `among` leaves only some ids to be found: these ids, or a boolean mask over `ids`; `label` those that have it.
        """
        _check_ranking(ranking)
        if not 1 <= k <= _MOST:
            raise InputError(f"k must be at least 1 and, by Milvus, at most {_MOST}, got {k}")
        rows = self._nearest(queries, k, {"nprobe": self._probes}, among, label)
        width = min((len(row) for row in rows), default=0)
        found = np.array([row[:width] for row in rows], np.int64).reshape(len(queries), width, 2)
        return Matches(found[:, :, 0].astype(np.int32), found[:, :, 1])

    def within(
        self, queries: Codes, radius: float, *, among: Among | None = None, ranking: Ranking | None = "hamming"
    ) -> Neighbourhoods:
        """Return every code at Hamming distance ≤ radius of each query, nearest first; `among` as in `search`."""
        _check_ranking(ranking)
        check_radius(radius)
        whole = math.floor(min(radius, queries.n_bits))
        rows = self._nearest(queries, _MOST, {"nprobe": self._lists, "radius": whole + 1}, among, None)
        if any(len(row) == _MOST for row in rows):
            raise InputError(
                f"more than {_MOST} codes lie within {radius}, which is all that Milvus gives: lower radius"
            )
        found = np.array([pair for row in rows for pair in row], np.int64).reshape(-1, 2)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        return Neighbourhoods(offsets.astype(np.int64), found[:, 0].astype(np.int32), found[:, 1])

    def close(self) -> None:
        """End the connection; an embedded index can then be opened by another process."""
        self._client.close()

    def _retried(self, call: Callable[[], Result]) -> Result:
        """Call again while the engine refuses, up to the timeout: one that was just started does for a while."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return call()
            except self._library.MilvusException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _nearest(
        self,
        queries: Codes,
        most: int,
        parameters: dict[str, int],
        among: Among | None,
        label: str | None,
    ) -> list[list[tuple[int, int]]]:
        """Return up to `most` pairs (distance, id) for each query, in their order."""
        check_width(self._n_bits, queries)
        chosen = chosen_ids(among, self)
        if self._n_bits is None or not len(queries) or (chosen is not None and not len(chosen)):
            return [[] for _ in range(len(queries))]
        conditions = [] if label is None else [f"array_contains(labels, {json.dumps(label)})"]
        conditions += [] if chosen is None else [f"id in {chosen.tolist()}"]
        found, step = [], max(1, _RESULTS // most)
        for first in range(0, len(queries), step):
            with self._explained():
                found += self._client.search(
                    self._name,
                    [bits.tobytes() for bits in queries.bits[first : first + step]],
                    filter=" and ".join(conditions),
                    limit=most,
                    search_params={"metric_type": "HAMMING", "params": parameters},
                    anns_field="code",
                    timeout=self._timeout,
                )
        return [_in_order({int(hit["id"]): round(hit["distance"]) for hit in hits}) for hits in found]

    def _check(self, codes: Codes, labels: Sequence[Sequence[str]] | None) -> None:
        check_width(self._n_bits, codes)
        if labels is not None and len(labels) != len(codes):
            raise InputError(f"labels must be as many as the codes, {len(codes)}, got {len(labels)}")

    def _insert(self, codes: Codes, labels: Sequence[Sequence[str]] | None, chosen: NDArray[np.intp]) -> "MilvusIndex":
        """Send the chosen rows, some thousand at a time, each of which is written as a whole or not at all."""
        if self._n_bits is None:
            self._create(codes.n_bits)
        step = _ROWS if self._served else _FILE_ROWS
        for first in range(0, len(chosen), step):
            rows = [
                {
                    "id": int(codes.ids[row]),
                    "code": codes.bits[row].tobytes(),
                    "labels": [] if labels is None else list(labels[row]),
                }
                for row in chosen[first : first + step].tolist()
            ]
            with self._explained():
                self._client.insert(self._name, rows, timeout=self._timeout)
        return self

    def _create(self, n_bits: int) -> None:
        types, client = self._library.DataType, self._client
        about = f"dmuh codes of {n_bits} bits" + (f" of {self._of}" if self._of else "")
        schema = client.create_schema(auto_id=False, description=about)
        schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field("code", types.BINARY_VECTOR, dim=8 * -(-n_bits // 8))
        schema.add_field(
            "labels", types.ARRAY, element_type=types.VARCHAR, max_capacity=_LABELS, max_length=_LABEL_LENGTH
        )
        with self._explained():  # strong: a search sees all that was written before it
            client.create_collection(self._name, schema=schema, consistency_level="Strong", timeout=self._timeout)
            self._make_ready()
        self._n_bits = n_bits

    def _make_ready(self) -> None:
        """Index and load the collection, where that is not done: who created it may have been stopped before."""
        if not self._client.list_indexes(self._name, timeout=self._timeout):
            index = self._client.prepare_index_params()
            cells = {"nlist": self._lists} if self._kind == "BIN_IVF_FLAT" else {}
            index.add_index("code", index_type=self._kind, metric_type="HAMMING", params=cells)
            self._client.create_index(self._name, index, timeout=self._timeout)
        self._client.load_collection(self._name, timeout=self._timeout)
        self._retried(lambda: self._client.query(self._name, "", ["count(*)"], timeout=self._timeout))

    def _width(self) -> int | None:
        """Return the length of the codes in the collection, None where there is no collection yet."""
        if not self._client.has_collection(self._name, timeout=self._timeout):
            return None
        about = self._client.describe_collection(self._name, timeout=self._timeout)["description"]
        found = _ABOUT.fullmatch(about)
        if found is None:
            raise EngineError(f"the collection {self._name} of {self._where} was not made by dmuh: name another")
        if self._of and found[2] and found[2] != self._of:
            raise DataError(
                f"the collection {self._name} of {self._where} holds the codes of another index: give another address"
            )
        return int(found[1])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong with Milvus into one sentence."""
        try:
            yield
        except self._failures as error:
            said = error.details() if hasattr(error, "details") else getattr(error, "message", error)
            reason = " ".join(str(said).split())[:200]
            raise EngineError(f"Milvus at {self._where} failed (timeout {self._timeout:g} s): {reason}") from error


def _check_ranking(ranking: Ranking | None) -> None:
    if ranking not in (None, "hamming"):
        raise InputError(f"Milvus ranks by hamming, got {ranking}")


def _in_order(distances: dict[int, int]) -> list[tuple[int, int]]:
    """Return pairs (distance, id) in their order, from distances by id; equal ones in that of the shuffle."""
    ids, away = np.array(list(distances), np.int64), np.array(list(distances.values()), np.int64)
    order = np.lexsort((shuffled(ids), away))
    return list(zip(away[order].tolist(), ids[order].tolist(), strict=True))
