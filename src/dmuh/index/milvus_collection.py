"""MilvusCollection: a connection to Milvus, and one collection of codes there, which is made when codes come."""

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import ConfigError, DataError, EngineError, MissingExtraError
from dmuh.index.milvus_rows import Layout

Result = TypeVar("Result")
_KINDS = ("BIN_FLAT", "BIN_IVF_FLAT")
ROWS = 10_000  # codes that are sent together to a server, and ids that are read together from it
_FILE_ROWS = 1_000  # the same for a file, where the time for n codes grows as n²
IDS = 5_000  # ids that are named in one expression
_CALM = {"grpc.keepalive_time_ms": 3_600_000}  # the embedded engine ends connections that often check whether it lives


class MilvusCollection:
    """What `MilvusIndex` searches; see there for what it is opened by."""

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
            self._layout = self._found_layout()
            if self._layout is not None:
                self._make_ready()

    def __len__(self) -> int:
        if self._layout is None:
            return 0
        with self._explained():
            found = self._client.query(self._name, "", ["count(*)"], timeout=self._timeout)
        return int(found[0]["count(*)"])

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

    def _rows(self, field: str, values: NDArray[np.int64], fields: list[str]) -> list[dict[str, Any]]:
        """Return these fields of the rows whose field has one of the values."""
        found: list[dict[str, Any]] = []
        if len(self):
            for first in range(0, len(values), IDS):
                condition = f"{field} in {values[first : first + IDS].tolist()}"
                with self._explained():
                    found += self._client.query(self._name, condition, fields, timeout=self._timeout)
        return found

    def _insert(self, codes: Codes, labels: Sequence[Sequence[str]] | None, chosen: NDArray[np.intp]) -> None:
        """Send the chosen rows, some thousand at a time, each of which is written as a whole or not at all."""
        layout = self._layout or self._create(codes)
        step = ROWS if self._served else _FILE_ROWS
        for first in range(0, len(chosen), step):
            rows = layout.rows(codes, labels, chosen[first : first + step].tolist())
            with self._explained():
                self._client.insert(self._name, rows, timeout=self._timeout)

    def _create(self, codes: Codes) -> Layout:
        """Make the collection for codes like these."""
        layout = Layout(codes.n_bits, codes.worth, self._of)
        schema = self._client.create_schema(auto_id=False, description=layout.description())
        layout.add_fields(schema, self._library.DataType)
        with self._explained():  # strong: a search sees all that was written before it
            self._client.create_collection(self._name, schema=schema, consistency_level="Strong", timeout=self._timeout)
            self._make_ready()
        self._layout = layout
        return layout

    def _make_ready(self) -> None:
        """Index and load the collection, where that is not done: who created it may have been stopped before."""
        if not self._client.list_indexes(self._name, timeout=self._timeout):
            index = self._client.prepare_index_params()
            cells = {"nlist": self._lists} if self._kind == "BIN_IVF_FLAT" else {}
            index.add_index("code", index_type=self._kind, metric_type="HAMMING", params=cells)
            self._client.create_index(self._name, index, timeout=self._timeout)
        self._client.load_collection(self._name, timeout=self._timeout)
        self._retried(lambda: self._client.query(self._name, "", ["count(*)"], timeout=self._timeout))

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
                f"the collection {self._name} of {self._where} holds the codes of another index: give another address"
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
