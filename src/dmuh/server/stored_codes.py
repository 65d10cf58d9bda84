"""StoredCodes: the codes of a catalogue's rows, as queries, and their distance to one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Row
from dmuh.catalogue.row_codes import codes_of
from dmuh.codes import Codes
from dmuh.index.soft import Ranking, pair_distances, shown


class StoredCodes:
    """Makes codes of rows; `worth` is what the levels of the catalogue's codes stand for, None if they have none."""

    def __init__(self, n_bits: int, worth: NDArray[np.float32] | None) -> None:
        self._n_bits = n_bits
        self._worth = worth

    @property
    def ranking(self) -> Ranking:
        """The order of what is found from a row, where none is asked for."""
        return "hamming" if self._worth is None else "soft"

    def codes(self, rows: Sequence[Row]) -> Codes:
        """Return the codes of rows, with their levels; ids are positions."""
        return codes_of(rows, self._n_bits, self._worth)

    def distance(self, query: Codes, row: Row, ranking: Ranking) -> float:
        """Return the distance of one code to a row, as an index computes it."""
        own = self.codes([row])
        if ranking == "hamming":
            return int(np.bitwise_count(query.bits ^ own.bits).sum())
        return float(shown(pair_distances(query, own))[0, 0])
