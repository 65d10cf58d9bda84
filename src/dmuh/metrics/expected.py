"""Exact means over all orders of ties, from the counts per distance alone."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def harmonic_numbers(n: int) -> Floats:
    """Return the first n harmonic numbers, and 0 before them (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


def average_precision(total: Ints, good: Ints, cut: int, most: int, harmonic: Floats | None = None) -> Floats:
    """Average precision (queries,) in the mean over all orders of ties, from counts per distance (queries, distances).

    The first `cut` places count; their sum is divided by the relevant items, by `most` of them at most, or where that
    is 0 by those among these places. `harmonic` are the harmonic numbers up to the size of the database, for who calls
    this often.

    The j-th place of a group of t items, r of them relevant, behind T items of which R are relevant, is relevant with
    probability r/t; if so, (j-1)(r-1)/(t-1) relevant items of the group are expected before it. Its share of AP is
    therefore r/t · (R + 1 + (j-1)·b) / (T + j) with b = (r-1)/(t-1); the sum over j is a harmonic number.
    """
    before = np.cumsum(total, axis=1) - total  # T
    good_before = np.cumsum(good, axis=1) - good  # R
    taken = np.clip(cut - before, 0, total)
    if harmonic is None:
        harmonic = harmonic_numbers(total.sum(axis=1).max(initial=0))
    share = _group_sum(total, good, before, good_before, taken, harmonic)
    n_good = good.sum(axis=1)
    if most or cut >= total.sum(axis=1).max(initial=0):
        whole_ap: Floats = share.sum(axis=1) / np.maximum(np.minimum(n_good, most or cut), 1)
        return whole_ap

    whole = taken == total
    split = (taken > 0) & ~whole  # the one group that the cut-off divides
    retrieved = (good * whole).sum(axis=1)
    sums = (share * whole).sum(axis=1)
    result: Floats = sums / np.maximum(retrieved, 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total.max(initial=0) + 1)))])
    for row in np.flatnonzero(split.any(axis=1)):
        g = int(split[row].argmax())
        t, r, m = int(total[row, g]), int(good[row, g]), int(taken[row, g])
        # how many of the group's relevant items fall before the cut-off is hypergeometric: condition on it
        x = np.arange(max(0, m - (t - r)), min(r, m) + 1)
        log_chance = _log_choose(r, x, log_factorial) + _log_choose(t - r, m - x, log_factorial)
        chance = np.exp(log_chance - log_chance.max())
        chance /= chance.sum()
        inner = _group_sum(np.full_like(x, m), x, before[row, g], good_before[row, g], np.full_like(x, m), harmonic)
        result[row] = (chance * (sums[row] + inner) / np.maximum(retrieved[row] + x, 1)).sum()
    return result


def _group_sum(total: Ints, good: Ints, before: Ints, good_before: Ints, taken: Ints, harmonic: Floats) -> Floats:
    """Return what the first `taken` places of each group of ties add to the sum of precisions."""
    b = (good - 1) / np.maximum(total - 1, 1)
    steps = harmonic[before + taken] - harmonic[before]
    added: Floats = good / np.maximum(total, 1) * (b * taken + (good_before + 1 - b * (before + 1)) * steps)
    return added


def _log_choose(n: int, k: Ints, log_factorial: Floats) -> Floats:
    log_chance: Floats = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
    return log_chance


def hits_at(total: Ints, good: Ints, ranks: Ints) -> Floats:
    """Return the relevant items expected among the first `ranks` (queries, ranks): linear within each group of ties."""
    ends = np.concatenate([np.zeros((len(total), 1), np.int64), np.cumsum(total, axis=1)], axis=1)
    hits = np.concatenate([np.zeros((len(good), 1), np.int64), np.cumsum(good, axis=1)], axis=1)
    interpolated = np.empty((len(total), len(ranks)))
    for row in range(len(total)):
        interpolated[row] = np.interp(ranks, ends[row], hits[row])
    return interpolated
