"""Soft ranking: codes in the order of how many bits are expected to differ, given how sure each bit is.

A bit that turns over with probability p has the sureness w = 1 - 2p, from 0 for a coin toss to 1. If bits of a query
and of a database code turn over independently, they differ with probability (1 - w·c) / 2 where they are equal and
(1 + w·c) / 2 where they are not, with w the sureness of the query's bit and c that of the database's. The sum over all
bits is the expected number of differing bits; with all bits sure it is the Hamming distance.

It is computed in whole numbers: w·c is rounded to s out of UNITS, and a bit adds UNITS - s where the two are equal,
UNITS + s where they are not. The sum, divided by 2·UNITS, is the distance that is shown. So a search can be exact, and
ties are ties.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import InputError

Ranking = Literal["hamming", "soft"]
RANKINGS = ("hamming", "soft")

UNITS = 15  # four bits; finer weights change no ranking that matters
PLANES = 4  # bits of a weight


def choose_ranking(ranking: str | None, queries: Codes) -> Ranking:
    """Return the ranking that is meant: not named, it is soft where it is known how sure the queries' bits are."""
    if ranking is None:
        return "soft" if queries.knows_uncertainty else "hamming"
    if ranking not in RANKINGS:
        raise InputError(f"ranking must be hamming or soft, got {ranking!r}")
    return "soft" if ranking == "soft" else "hamming"


def pair_weights(queries: Codes, worth: NDArray[np.float32] | None) -> NDArray[np.uint8]:
    """Return s, how sure each query's bit and a database bit of each level are together: uint8 (q, n_bits, levels).

    `worth` (n_bits, levels) is that of the database's levels, None for codes without: all their bits count as sure. So
    do those of queries of which it is not known.
    """
    unsure: NDArray[Any] | None = queries.uncertainty
    sure = np.ones((len(queries), queries.n_bits), np.float32) if unsure is None else 1 - 2 * unsure
    of_levels = np.ones((queries.n_bits, 1), np.float32) if worth is None else worth
    return np.rint(UNITS * sure[:, :, None] * of_levels[None]).astype(np.uint8)


def shown(distances: NDArray[Any]) -> NDArray[np.float32]:
    """Return sums of whole units as expected numbers of differing bits."""
    return (distances / np.float32(2 * UNITS)).astype(np.float32)


def distance_text(distance: float) -> str:
    """Return a distance as it is shown: an expected number of differing bits as 3.4, a Hamming distance as 3."""
    return str(distance) if isinstance(distance, int) else f"{distance:.1f}"


def pair_distances(queries: Codes, codes: Codes) -> NDArray[np.int64]:
    """Return the distance of each query to each of a few codes, in whole units: int64 (q, n)."""
    weights = pair_weights(queries, codes.worth).astype(np.float32)  # float32 holds these sums exactly, and is quick
    asked, stored = (np.where(part.unpack() == 1, np.float32(1), np.float32(-1)) for part in (queries, codes))
    level, total = codes.level(), np.full((len(queries), len(codes)), UNITS * codes.n_bits, np.int64)
    for number in range(weights.shape[2]):
        agreed = (asked * weights[:, :, number]) @ (stored * (level == number)).T
        total -= agreed.astype(np.int64)
    return total


def reach(radius: float, n_bits: int) -> int:
    """Return the largest sum of whole units that is shown as at most the radius, of codes of a length."""
    sums = shown(np.arange(2 * UNITS * n_bits + 1))
    return int(np.searchsorted(sums, np.float32(radius), side="right")) - 1
