"""ClassCodes: a second set of codes of a service's images, by class, under the same ids.

It follows the first one: what is added, deleted and brought back there is so here.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from dmuh.catalogue import Catalogue, Entry, Row
from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.images import Pixels
from dmuh.server.searcher import Searcher
from dmuh.server.stored_codes import StoredCodes

_UNDO_IMAGES = 10_000  # deleted images that can be brought back


class ClassCodes:
    """The model of codes by class, their catalogue and what searches it; all but `encode` runs in one thread."""

    def __init__(self, hasher: Hasher, catalogue: Catalogue) -> None:
        self._hasher = hasher
        self._catalogue = catalogue
        self._sure = catalogue.sure or 0
        self._stored = StoredCodes(catalogue.n_bits, catalogue.worth)
        self._deleted: OrderedDict[int, Row] = OrderedDict()
        self.searcher = Searcher(catalogue, None, hasher.calibration.match_by_ranking(self._sure))

    def encode(self, pixels: list[Pixels]) -> list[Codes | Exception]:
        """Return the codes of uploaded images."""
        codes = self._hasher.encode_pixels(np.stack(pixels), self._sure)
        return [codes[row : row + 1] for row in range(len(codes))]

    def add(self, row: Row, code: Codes) -> None:
        """Add an image that was added to the service, with its code by class."""
        labels = json.loads(row.labels)
        entry = Entry(os.fsdecode(row.path), labels, json.loads(row.metadata), row.id, bool(row.added), row.stamp)
        self._catalogue.add([entry], code)
        self.searcher.update([code.stored().with_ids([row.id])], [], set(labels))

    def follow(self, new: Sequence[Codes], gone: Sequence[Row]) -> None:
        """Delete the images that are gone from the service, and bring those back that came back under their ids."""
        rows = [row for row in (self._catalogue.remove(row.id, forget=False) for row in gone) if row is not None]
        self._deleted.update((row.id, row) for row in rows)
        while len(self._deleted) > _UNDO_IMAGES:
            self._deleted.popitem(last=False)
        ids = [id_ for codes in new for id_ in codes.ids.tolist()]
        back = [self._deleted.pop(id_) for id_ in ids if id_ in self._deleted]
        for row in back:
            self._catalogue.restore(row)
        codes = [self._stored.codes([row]).with_ids([row.id]) for row in back]
        self.searcher.update(codes, rows, {label for row in back for label in json.loads(row.labels)})
