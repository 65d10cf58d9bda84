"""Rankings measured slowly, and codes that know how sure they are, for the tests of metrics."""

import math

import numpy as np

from dmuh import Codes
from dmuh.index.soft import UNITS


def graded(codes, sure, rng):
    """The codes with random levels of so many planes, worth from 0 to 1; with none as they are."""
    if not sure:
        return codes
    levels = np.packbits(rng.integers(0, 2, (len(codes), sure, codes.n_bits), np.uint8), axis=2, bitorder="little")
    worth = np.sort(rng.random((codes.n_bits, 2**sure)).astype(np.float32), axis=1)
    return Codes(codes.bits, codes.n_bits, ids=codes.ids, levels=levels, worth=worth)


def soft_distances(query, database):
    """The whole-number soft distances of one query's code to all of the database, pair by pair and bit by bit."""
    unsure, own = query.uncertainty, query.unpack()[0].tolist()
    found = []
    for bits, levels in zip(database.unpack().tolist(), database.level().tolist(), strict=True):
        away = 0
        for k, (bit, level) in enumerate(zip(bits, levels, strict=True)):
            sure = np.float32(1) if unsure is None else np.float32(1) - np.float32(2) * unsure[0, k]
            worth = np.float32(1) if database.worth is None else database.worth[k, level]
            weight = round(float(np.float32(UNITS) * sure * worth))  # halves to even
            away += UNITS + weight if bit != own[k] else UNITS - weight
        found.append(away)
    return found


def slow_expected_ap(total, good, cut, denominator):
    """The mean over all orders of ties, place by place, with exact binomials where the cut-off divides a tie."""
    summed, before, good_before = 0.0, 0, 0
    n_good = sum(good)

    def share(t, r, taken):
        places = range(1, taken + 1)
        return sum(r / t * (good_before + 1 + (j - 1) * (r - 1) / max(t - 1, 1)) / (before + j) for j in places)

    for t, r in zip(total, good, strict=True):
        if before >= cut:
            break
        taken = min(t, cut - before)
        if taken < t and denominator == "retrieved":
            mean = 0.0
            for x in range(max(0, taken - (t - r)), min(r, taken) + 1):
                chance = math.comb(r, x) * math.comb(t - r, taken - x) / math.comb(t, taken)
                inner = share(taken, x, taken) if x else 0.0
                mean += chance * (summed + inner) / max(good_before + x, 1)
            return mean
        summed += share(t, r, taken) if r else 0.0
        before, good_before = before + t, good_before + r
    return summed / max({"retrieved": good_before, "relevant": min(n_good, cut), "all": n_good}[denominator], 1)
