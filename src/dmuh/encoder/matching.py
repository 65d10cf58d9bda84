"""What a distance means: how likely an answer shares a label with the query, and how that is said."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmuh.encoder.calibration import DEFAULT_SURE, Calibration

Likely = Literal["very likely", "maybe", "unlikely"]

VERY_LIKELY, MAYBE = 0.8, 0.4  # probabilities from which on an answer is called so


def likely(probability: float) -> Likely:
    """Return the word for a probability that two images share a label.

    >>> from dmuh.encoder.matching import likely
    >>> likely(0.93), likely(0.5), likely(0.1)
    ('very likely', 'maybe', 'unlikely')
    """
    if probability >= VERY_LIKELY:
        return "very likely"
    return "maybe" if probability >= MAYBE else "unlikely"


def match_of(
    calibration: Calibration, ranking: str, distances: ArrayLike, sure: int = DEFAULT_SURE
) -> NDArray[np.float64] | None:
    """Return the probability that images at these distances share a label, in their shape; None if it is not known.

    ranking  hamming, or soft: what the distances are
    sure     bits of sureness per bit of the codes that were searched

    >>> from dmuh.encoder.matching import match_of
    >>> hasher = dmuh.Hasher.load(run)
    >>> near, far = match_of(hasher.calibration, "soft", [0.5, 9.5])
    >>> bool(near > far)
    True
    """
    curve = calibration.match_by_ranking(sure).get(ranking)
    return None if curve is None else curve(distances)


def turning_over(expected: float, n_bits: int) -> str:
    """Return how many bits of an image are expected to turn over, as text.

    >>> from dmuh.encoder.matching import turning_over
    >>> turning_over(2.31, 32)
    'about 2.3 of 32 bits may turn over'
    """
    return f"about {expected:.1f} of {n_bits} bits may turn over"
