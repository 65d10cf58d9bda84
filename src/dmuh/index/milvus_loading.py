"""MilvusLoading: codes are sent to a Milvus collection in columns, several requests at a time, and sealed there.

What Milvus takes in is compared without an index at first, which takes tenths of a second for a million codes. Once it
is sealed, by a flush, Milvus indexes it in the background, and a search takes milliseconds.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import EngineError
from dmuh.index.base import Ids
from dmuh.index.milvus_collection import IDS, MilvusCollection
from dmuh.index.milvus_options import MilvusOptions

log = logging.getLogger(__name__)

Labels = Sequence[Sequence[str]]

_ROWS = 10_000  # codes that are sent together to a server
_FILE_ROWS = 1_000  # the same for a file, where the time for n codes grows as n²
_AT_ONCE = 4  # requests that are on their way to a server
_SEAL = 50_000  # codes after which what was added is sealed,
_SEAL_SECONDS = 30.0  # if that was not done in the last seconds: servers limit how often it may be asked for


class MilvusLoading(MilvusCollection):
    """The collection, and how codes get into it."""

    def __init__(self, options: MilvusOptions, of: str = "") -> None:
        super().__init__(options, of)
        self._unsealed, self._sealed_at = 0, -_SEAL_SECONDS

    def settle(self, seconds: float = 600.0) -> bool:
        """Let Milvus index what was added, and wait for it up to some seconds; return whether that is done.

        A search before that finds the same and takes longer. Milvus comes to it by itself, minutes later.
        """
        if self._layout is None or not self._options.served:
            return True
        deadline, in_a_row = time.monotonic() + seconds, 0
        with self._explained():
            self._handler.flush([self._name], timeout=max(seconds, self._timeout))
        self._unsealed, self._sealed_at = 0, time.monotonic()
        while in_a_row < 4:  # what a search node has loaded is searched a moment later
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
            in_a_row = in_a_row + 1 if self._is_settled() else 0
        return True

    def _is_settled(self) -> bool:
        """Return whether all rows that were written to segments are indexed, and loaded with that by who searches."""
        asked: dict[str, Any] = {"timeout": self._timeout}
        try:
            index = self._client.describe_index(self._name, self._index_name, **asked)
            stored = self._handler.get_persistent_segment_infos(self._name, **asked)
            loaded = self._handler.get_query_segment_info(self._name, **asked)
        except self._failures as error:  # it settles all the same
            log.info("Milvus at %s does not say how far it is: %s", self._where, error)
            return False
        rows, searched = (sum(segment.num_rows for segment in segments) for segments in (stored, loaded))
        return bool(index["pending_index_rows"] == 0 and searched >= rows)

    def _insert(self, codes: Codes, labels: Labels | None, chosen: NDArray[np.intp]) -> None:
        """Send the chosen rows, some thousand at a time, each part of which is written as a whole or not at all.

        At the first failure no more is sent; the error says how many are in.
        """
        if not len(chosen):
            return
        if self._layout is None:
            self._create(codes)
        step, at_once = (_ROWS, _AT_ONCE) if self._options.served else (_FILE_ROWS, 1)
        parts = [chosen[first : first + step] for first in range(0, len(chosen), step)]
        pool = ThreadPoolExecutor(min(at_once, len(parts)), thread_name_prefix="dmuh-milvus")
        try:
            sent = [pool.submit(self._send, codes, labels, part) for part in parts]
            wait(sent, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
        done = [future for future in sent if not future.cancelled()]
        failed = next((future.exception() for future in done if future.exception()), None)
        if failed is None:
            self._seal_at_times(len(chosen))
        elif isinstance(failed, EngineError) and len(parts) > 1:
            n_in = sum(future.result() for future in done if not future.exception())
            raise EngineError(f"{failed}; {n_in:,} of {len(chosen):,} codes are in: add_missing sends the rest")
        else:
            raise failed

    def _send(self, codes: Codes, labels: Labels | None, part: NDArray[np.intp]) -> int:
        """Send one part; return how many codes it has.

        It is sent once: were it sent again after an answer that was lost, its codes could be there twice.
        """
        from pymilvus.grpc_gen import milvus_pb2, schema_pb2

        assert self._layout is not None, "the collection is made first"
        columns = self._layout.columns(codes, labels, part, schema_pb2)
        request = milvus_pb2.InsertRequest(collection_name=self._name, fields_data=columns, num_rows=len(part))
        deadline, pause = time.monotonic() + self._timeout, 0.05
        with self._explained():
            while True:
                try:
                    self._writes.added(self._inserted(request) or self._now(), codes.ids[part])
                    return len(part)
                except self._library.MilvusException as error:
                    if not _asks_too_much(error) or time.monotonic() + pause > deadline:
                        self._writes.doubt()
                        raise
                except BaseException:
                    self._writes.doubt()
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _inserted(self, request: Any) -> int:
        """Send a request to insert, and return its timestamp.

        The timeout is given by its place: by name pymilvus would send again what failed until it is over. The schema
        is not looked at, and asked for at each request if it is not given.
        """
        answer = self._handler.batch_insert(
            self._name, [], None, self._timeout, insert_param=request, schema={"fields": []}, retry_times=0
        )
        return int(answer.timestamp)

    def _delete(self, ids: Ids) -> None:
        """Delete the rows of these ids. Milvus 2.3 gives no timestamp of that, so one from after it is asked for."""
        try:
            for first in range(0, len(ids), IDS):
                with self._explained():
                    self._client.delete(self._name, ids=ids[first : first + IDS].tolist(), timeout=self._timeout)
            if len(ids):
                with self._explained():
                    self._writes.changed(self._now())
        except BaseException:
            self._writes.doubt()
            raise

    def _seal_at_times(self, n_new: int) -> None:
        """Ask Milvus to index what was added, when that is much and was not asked for lately; nothing waits for it."""
        self._unsealed += n_new
        lately = time.monotonic() - self._sealed_at < _SEAL_SECONDS
        if self._unsealed < _SEAL or lately or not self._options.served:
            return
        self._unsealed, self._sealed_at = 0, time.monotonic()
        try:
            self._handler.flush([self._name], timeout=self._timeout, _async=True, retry_on_rate_limit=False)
        except self._failures as error:  # the codes are in: they are sealed another time
            log.info("Milvus at %s does not seal now: %s", self._where, error)


def _asks_too_much(error: Any) -> bool:
    """Return whether a server refused since too much is asked of it at a time, by its new code or the old one."""
    return bool(error.code == 8 or error.compatible_code == 49)
