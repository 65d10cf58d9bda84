"""MilvusMirror: a copy in Milvus of the catalogue's codes, which follows every change of the catalogue."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from dmuh.catalogue import Catalogue
from dmuh.codes import Codes
from dmuh.errors import EngineError, FormatError, RequestError
from dmuh.index import Matches, MilvusIndex, Ranking

log = logging.getLogger(__name__)

_NAME = re.compile("dmuh_[0-9a-f]{32}")
_SECONDS = 10.0  # that Milvus may take for one request


class MilvusMirror:
    """The codes of a catalogue in Milvus, in a collection that is this catalogue's alone.

    The catalogue decides. If Milvus misses a change, its codes are compared with the catalogue's before the next
    search, which is refused as long as that fails: a search sees every acknowledged change, or says why it cannot.
    """

    def __init__(self, address: str, catalogue: Catalogue) -> None:
        name = catalogue.about("milvus")
        if name is None:
            name = f"dmuh_{uuid4().hex}"
            catalogue.note(milvus=name)
        elif not _NAME.fullmatch(name):  # it may be another program's, whose codes must not be removed
            raise FormatError(f"{catalogue.file} names {name!r} as its collection in Milvus, which dmuh did not make")
        self._catalogue = catalogue
        self._index = MilvusIndex(address, collection=name, timeout=_SECONDS)
        self._n = 0
        self._behind = True
        self._catch_up()

    def __len__(self) -> int:
        return self._n

    def add(self, codes: Codes) -> None:
        """Add codes that the catalogue has."""
        self._n += len(codes)
        self._change(lambda: self._index.add(codes))

    def remove(self, ids: Sequence[int]) -> None:
        """Remove codes that the catalogue has no more."""
        self._n -= len(ids)
        self._change(lambda: self._index.remove(ids))

    def search(self, queries: Codes, k: int, *, ranking: Ranking | None = None) -> Matches:
        """Return the k nearest codes of each query, nearest first, as `MilvusIndex.search` does."""
        try:
            self._catch_up()
            return self._index.search(queries, k, ranking=ranking)
        except EngineError as error:
            log.warning("%s", error)
            raise RequestError(503, "the engine that searches does not answer: try again in a moment") from error

    def close(self) -> None:
        """End the connection."""
        self._index.close()

    def _change(self, change: Callable[[], Any]) -> None:
        try:
            if not self._behind:
                change()
        except EngineError as error:
            log.warning("%s; what changed is taken up when it answers again", error)
            self._behind = True

    def _catch_up(self) -> None:
        """Give Milvus what it misses, and remove what it should not have."""
        if self._behind:
            codes = self._catalogue.codes()
            self._index.remove(np.setdiff1d(self._index.ids, codes.ids))
            self._index.add_missing(codes)
            self._n, self._behind = len(codes), False
