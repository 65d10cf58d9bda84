"""MilvusCollection: a connection to Milvus, and one collection of codes there, which is made when codes come."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import DataError, EngineError, MissingExtraError
from dmuh.index.base import Ids
from dmuh.index.milvus_options import MilvusOptions
from dmuh.index.milvus_rows import Layout
from dmuh.index.milvus_writes import Writes

Result = TypeVar("Result")
PAGE = 16_384  # rows of an answer, by Milvus's own limit
IDS = 5_000  # ids that are named in one expression
_CALM = {"grpc.keepalive_time_ms": 3_600_000}  # the embedded engine ends connections that often check whether it lives


class MilvusCollection:
    """What `MilvusIndex` searches; see there for what it is opened by."""

    def __init__(self, options: MilvusOptions, of: str = "") -> None:
        self._options, self._of = options, of
        self._where, self._name, self._timeout = options.where, options.collection, options.timeout
        if not options.served:
            Path(self._where).absolute().parent.mkdir(parents=True, exist_ok=True)
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
                lambda: pymilvus.MilvusClient(
                    self._where, timeout=self._timeout, grpc_options={} if options.served else _CALM
                )
            )
            self._writes = Writes(self._now())
            if options.served and self._writes.last == 1:  # no timestamps, in servers before 2.3: reads have to wait
                self._options = replace(options, consistency="strong")
            self._kind, self._lists, self._index_name = options.kind or "BIN_FLAT", options.lists, "code"
            self._layout = self._found_layout()
            if self._layout is not None:
                self._make_ready()

    def __len__(self) -> int:
        return self._count("")

    @property
    def of(self) -> str | None:
        """The word for what the collection belongs to, None where there is no collection yet."""
        return None if self._layout is None else self._layout.of

    def close(self) -> None:
        """End the connection; an embedded index can then be opened by another process."""
        self._client.close()

    @property
    def _handler(self) -> Any:
        """What sends the client's requests: it takes columns and gives timestamps, which the client does not."""
        return self._client._get_connection()

    def _now(self) -> int:
        """Return a timestamp of the server, after all that it acknowledged to anyone; 0 if it has none, as a file."""
        return int(self._handler.alloc_timestamp(timeout=self._timeout))

    def _reading(self, *, search: bool = False, since: int = 0) -> dict[str, Any]:
        """Return the options of a read: it waits for all that was written here, or up to a timestamp.

        A search is as the consistency of this index says; what else is read is never behind what was written here.
        """
        if self._options.consistency == "strong":
            return {"consistency_level": "Strong"}
        if search and self._options.consistency == "bounded":
            return {"consistency_level": "Bounded"}
        self._writes.resolved(self._now)
        return {"consistency_level": "Customized", "guarantee_timestamp": since or self._writes.last}

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

    def _count(self, condition: str, since: int = 0) -> int:
        """Return how many rows there are of a condition."""
        if self._layout is None:
            return 0
        with self._explained():
            found = self._client.query(
                self._name, condition, ["count(*)"], timeout=self._timeout, **self._reading(since=since)
            )
        return int(found[0]["count(*)"])

    def _rows(self, field: str, values: NDArray[np.int64], fields: list[str], since: int = 0) -> list[dict[str, Any]]:
        """Return these fields of the rows whose field has one of the values."""
        found: list[dict[str, Any]] = []
        for first in range(0, len(values) if self._layout else 0, IDS):
            condition = f"{field} in {values[first : first + IDS].tolist()}"
            if not self._options.served and not self._count(condition, since):
                continue  # no row at all is told by a file in a way that some versions of pymilvus cannot read
            with self._explained():
                found += self._client.query(
                    self._name, condition, fields, timeout=self._timeout, **self._reading(since=since)
                )
        return found

    def _known(self, ids: Ids) -> Ids:
        """Return which of these ids, ascending, are in the collection: one count where none between them is."""
        with self._explained():
            self._writes.resolved(self._now)
        since, recent = self._writes.settled()
        found = np.intersect1d(ids, recent)
        if len(ids) and self._count(f"id >= {ids[0]} and id <= {ids[-1]}", since):
            stored = np.array([row["id"] for row in self._rows("id", ids, ["id"], since)], np.int64)
            found = np.union1d(found, stored)
        return found

    def _all_ids(self) -> Ids:
        """Return all ids, ascending: pages of the smallest that are larger than the last page's."""
        found, condition = [np.empty(0, np.int64)], ""
        missing = len(self)
        while missing > 0:
            with self._explained():
                rows = self._client.query(
                    self._name,
                    condition,
                    ["id"],
                    limit=PAGE,
                    reduce_stop_for_best=True,
                    timeout=self._timeout,
                    **self._reading(),
                )
            if not rows:  # others removed some meanwhile
                break
            found.append(np.array([row["id"] for row in rows], np.int64))
            condition = f"id > {found[-1].max()}"
            missing -= len(rows)
        return np.unique(np.concatenate(found))

    def _create(self, codes: Codes) -> Layout:
        """Make the collection for codes like these."""
        layout = Layout(codes.n_bits, codes.worth, self._of)
        schema = self._client.create_schema(auto_id=False, description=layout.description())
        layout.add_fields(schema, self._library.DataType)
        with self._explained():
            self._client.create_collection(
                self._name, schema=schema, consistency_level="Session", timeout=self._timeout
            )
            self._make_ready()
        self._layout = layout
        return layout

    def _make_ready(self) -> None:
        """Index and load the collection, where that is not done: who created it may have been stopped before."""
        made = self._client.list_indexes(self._name, timeout=self._timeout)
        if made:
            self._index_name = made[0]
            about = self._client.describe_index(self._name, made[0], timeout=self._timeout)
            if self._options.kind not in (None, about["index_type"]):
                raise DataError(
                    f"the collection {self._name} of {self._where} has the index {about['index_type']}, got kind "
                    f"{self._options.kind}: leave it out, or name another collection"
                )
            self._kind, self._lists = str(about["index_type"]), int(about.get("nlist", self._lists))
        else:
            index = self._client.prepare_index_params()
            cells = {"nlist": self._lists} if self._kind == "BIN_IVF_FLAT" else {}
            index.add_index(
                "code", index_name=self._index_name, index_type=self._kind, metric_type="HAMMING", params=cells
            )
            self._client.create_index(self._name, index, timeout=self._timeout)
        self._client.load_collection(self._name, timeout=self._timeout)
        self._retried(
            lambda: self._client.query(self._name, "", ["count(*)"], timeout=self._timeout, **self._reading())
        )

    def _found_layout(self) -> Layout | None:
        """Return what the collection holds, None where there is no collection yet."""
        if not self._client.has_collection(self._name, timeout=self._timeout):
            return None
        about = self._client.describe_collection(self._name, timeout=self._timeout)
        found = Layout.described(about["description"], [field["name"] for field in about["fields"]])
        if found is None:
            raise EngineError(f"the collection {self._name} of {self._where} was not made by dmuh: name another")
        if self._of and found.of and found.of != self._of:
            raise DataError(
                f"the collection {self._name} of {self._where} holds the codes of another index: give another address, "
                "or a name for the collection by ?collection=NAME"
            )
        return found

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong with Milvus into one sentence."""
        try:
            yield
        except self._failures as error:
            said = error.details() if hasattr(error, "details") else getattr(error, "message", error)
            reason = " ".join(str(said).split())[:200]
            raise EngineError(f"Milvus at {self._where} failed (timeout {self._timeout:g} s): {reason}") from error
