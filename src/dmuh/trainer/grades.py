"""The levels that say how sure bits are: where they part, and what each is worth, by images that did not train.

A level is all that a database keeps of how sure a bit is. Most bits are nearly certain; levels with equally many bits
each would part these from one another, and keep the few that are a coin toss together with many that are not. So four
levels part where the least is lost: where the squared differences between how sure bits are and the mean of their level
are smallest in sum. Of two levels, the surer one has a fixed share of the bits: by least squares it would have nearly
all bits of some methods, and images would hardly differ in it (docs/experiments/sure-bits.md has what was measured).

Where the bits of an image are unsure together, as where the network trained as a whole, two levels that part all bits
at the same share would tell two kinds of images apart, sure and unsure ones. So the share differs from bit to bit, and
how many bits of an image are in their surer level says how sure it is (as a dithered picture has many greys of black
and white dots).
"""

import numpy as np
from numpy.typing import NDArray

from dmuh.encoder.calibration import Grades

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SURER = 0.7  # the share of the bits that the surer one of two levels has
_FROM, _TO = 0.4, 0.95  # between these it lies where bits are unsure together
_TOGETHER = 0.5  # the mean correlation of two bits; of trained stages it was 0.7 to 0.8, of frozen features 0.1 to 0.25
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, less their whole part, lie evenly however many they are
_CUTS = 256  # places at most where levels may part


def best_grades(unsure: NDArray[np.float32], sure: int, *, together: bool = False) -> Grades:
    """Return the 2^sure levels of each bit by n images whose bits turn over with these probabilities (n, n_bits).

    together  whether the bits of an image are sure or unsure together
    """
    by_bit = unsure.T.astype(np.float64)
    place = (_GOLDEN * np.arange(len(by_bit)) + 0.5) % 1
    share = _TO - (_TO - _FROM) * place if together else np.full(len(by_bit), _SURER)
    parted = [
        at_share(values, surer) if sure == 1 else least_squares(values, 2**sure)
        for values, surer in zip(by_bit, share.tolist(), strict=True)
    ]
    thresholds = np.stack(parted).astype(np.float32)
    level = (unsure[:, :, None] < thresholds[None]).sum(axis=2)
    worth = np.empty((unsure.shape[1], 2**sure))
    sureness = 1 - 2 * unsure.astype(np.float64)
    for number in range(2**sure):
        chosen = level == number
        count = chosen.sum(axis=0)
        mean = (sureness * chosen).sum(axis=0) / np.maximum(count, 1)
        worth[:, number] = np.where(count > 0, mean, np.nan)
    return Grades(thresholds, _filled(worth).astype(np.float32))


def unsure_together(uncertainty: NDArray[np.float32]) -> bool:
    """Return whether bits are sure or unsure together in n images whose bits are so unsure (n, n_bits).

    That is told by the correlation of two bits, in the mean over all pairs of bits that differ from image to image.

    >>> unsure_together(np.array([[0.1, 0.2], [0.2, 0.3], [0.3, 0.5]], np.float32))
    True
    >>> unsure_together(np.array([[0.1, 0.5], [0.2, 0.2], [0.3, 0.3]], np.float32))
    False
    """
    values = uncertainty.astype(np.float64)
    values = values[:, np.ptp(values, axis=0) > 0]
    n_bits = values.shape[1]
    if n_bits < 2:
        return False
    scores = (values - values.mean(axis=0)) / values.std(axis=0)
    pairs = np.mean(scores.sum(axis=1) ** 2) - n_bits  # each two bits twice
    return bool(pairs / (n_bits * (n_bits - 1)) >= _TOGETHER)


def at_share(values: Floats, share: float = _SURER) -> Floats:
    """Return the threshold (1,) below which the share of values (n,) is nearest to that of the surer level."""
    different, count = np.unique(values, return_counts=True)
    if len(different) == 1:
        return different
    after = int(np.abs(np.cumsum(count[:-1]) / len(values) - share).argmin())
    return np.array([different[after : after + 2].mean()])


def least_squares(values: Floats, n_levels: int) -> Floats:
    """Return the thresholds (n_levels - 1,), falling, that part values (n,) with the least squares within levels.

    Where there are fewer different values than levels, the surest levels are empty; where there are very many, levels
    part at some of the places between them.
    """
    cuts = np.unique(values)
    cuts = (cuts[1:] + cuts[:-1]) / 2  # half way: a card keeps six digits
    if len(cuts) > _CUTS:
        cuts = cuts[np.linspace(0, len(cuts) - 1, _CUTS).astype(np.int64)]
    part = np.searchsorted(cuts, values)
    count, total = np.bincount(part), np.bincount(part, values).astype(np.float64)
    chosen = cuts[_parted(count, total, min(n_levels, len(count)))]
    return np.concatenate([chosen[::-1], np.full(n_levels - 1 - len(chosen), values.min())])


def _parted(count: Ints, total: Floats, n_levels: int) -> Ints:
    """Return after which of m groups, of so many values with these sums, levels end: (n_levels - 1,), rising.

    The least squares within levels are the largest sum over levels of (sum of values)² / (number of values).
    """
    counts, totals = (np.concatenate([[0], np.cumsum(each)]) for each in (count, total))
    number = counts[None] - counts[:, None]  # of values in the groups i … j - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(number > 0, (totals[None] - totals[:, None]) ** 2 / number, -np.inf)
    best, came_from = gain[0], []
    for _ in range(n_levels - 1):
        sums = best[:, None] + gain
        came_from.append(sums.argmax(axis=0))
        best = sums.max(axis=0)
    ends = [len(count)]
    for before in reversed(came_from):
        ends.append(int(before[ends[-1]]))
    return np.array(ends[:0:-1], np.int64) - 1


def _filled(worth: Floats) -> Floats:
    """Return the worth of levels with that of the level below, or else above, where no bit was of a level."""
    for number in range(1, worth.shape[1]):
        worth[:, number] = np.where(np.isnan(worth[:, number]), worth[:, number - 1], worth[:, number])
    for number in range(worth.shape[1] - 2, -1, -1):
        worth[:, number] = np.where(np.isnan(worth[:, number]), worth[:, number + 1], worth[:, number])
    rising: Floats = np.maximum.accumulate(np.clip(worth, 0, 1), axis=1)
    return rising
