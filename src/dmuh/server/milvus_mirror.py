"""MilvusMirror: a copy in Milvus of the catalogue's codes and labels, which follows every change of the catalogue."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from dmuh.catalogue import Catalogue
from dmuh.codes import Codes
from dmuh.errors import ConfigError, EngineError, FormatError, RequestError
from dmuh.index import Matches, MilvusIndex, Ranking
from dmuh.index.milvus_options import MilvusOptions

log = logging.getLogger(__name__)

_NAME = re.compile("dmuh_[0-9a-f]{32}")
_SECONDS = 10.0  # that Milvus may take for one request
_OF = "catalogue"  # what the collection belongs to; those of earlier versions say nothing, and have no labels
_TOGETHER = 50_000  # images whose labels are read together


class MilvusMirror:
    """The codes of a catalogue in Milvus, in a collection that is this catalogue's alone.

    The catalogue decides. If Milvus misses a change, its codes are compared with the catalogue's before the next
    search, which is refused as long as that fails: a search sees every acknowledged change, or says why it cannot. An
    address with ?consistency=bounded lets it lag behind instead, as `MilvusIndex` says.
    """

    def __init__(self, address: str, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._index = self._opened(address)
        self._n = 0
        self._behind = True
        self._catch_up()

    def _opened(self, address: str) -> MilvusIndex:
        """Open the collection of this catalogue; one without labels, of an earlier version, is not used any more."""
        if "collection" in MilvusOptions.named_in(address):
            raise ConfigError(f"a service has a collection of its own in Milvus: leave out collection, got {address}")
        name = self._catalogue.about("milvus")
        if name is not None:
            if not _NAME.fullmatch(name):  # it may be another program's, whose codes must not be removed
                raise FormatError(
                    f"{self._catalogue.file} names {name!r} as its collection in Milvus, which dmuh did not make"
                )
            index = MilvusIndex(address, collection=name, timeout=_SECONDS, of=_OF)
            if index.of in (None, _OF):
                return index
            index.close()
            log.warning(
                "the copy in Milvus is made anew, with labels: the collection %s there is not used any more", name
            )
        name = f"dmuh_{uuid4().hex}"
        self._catalogue.note(milvus=name)
        return MilvusIndex(address, collection=name, timeout=_SECONDS, of=_OF)

    def __len__(self) -> int:
        return self._n

    def add(self, codes: Codes) -> None:
        """Add codes that the catalogue has."""
        self._n += len(codes)
        self._change(lambda: self._index.add(codes, self._labels(codes)))

    def remove(self, ids: Sequence[int]) -> None:
        """Remove codes that the catalogue has no more."""
        self._n -= len(ids)
        self._change(lambda: self._index.remove(ids))

    def search(self, queries: Codes, k: int, *, ranking: Ranking | None = None, label: str | None = None) -> Matches:
        """Return the k nearest codes of each query, of all or of those with a label, as `MilvusIndex.search` does."""
        try:
            self._catch_up()
            return self._index.search(queries, k, ranking=ranking, label=label)
        except EngineError as error:
            log.warning("%s", error)
            raise RequestError(503, "the engine that searches does not answer: try again in a moment") from error

    def of_label(self, label: str) -> "OfLabel":
        """Return what searches the images that have a label."""
        return OfLabel(self, label)

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
            codes, there = self._catalogue.codes(), self._index.ids
            self._index.remove(np.setdiff1d(there, codes.ids))
            missing = codes[np.isin(codes.ids, there, invert=True)]
            for first in range(0, len(missing), _TOGETHER):
                part = missing[first : first + _TOGETHER]
                self._index.add_missing(part, self._labels(part))
            self._n, self._behind = len(codes), False

    def _labels(self, codes: Codes) -> list[list[str]]:
        """Return the labels of the images that these codes belong to."""
        labels = {row.id: json.loads(row.labels) for row in self._catalogue.rows(codes.ids.tolist())}
        return [labels.get(id_, []) for id_ in codes.ids.tolist()]  # none: it was deleted a moment ago


@dataclass(frozen=True)
class OfLabel:
    """The images of a mirror that have a label."""

    mirror: MilvusMirror
    label: str

    def search(self, queries: Codes, k: int, *, ranking: Ranking | None = None) -> Matches:
        """Return the k nearest codes of each query, nearest first."""
        return self.mirror.search(queries, k, ranking=ranking, label=self.label)
