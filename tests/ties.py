"""The order of equal distances, by whole numbers alone."""

import functools

import numpy as np

UNITS = 31


@functools.cache
def key(id_):
    """The place of an id in the shuffle."""
    mixed = (id_ + 0x632BE59BD9B4E019) * 0x9E3779B97F4A7C15 % 2**64
    return _signed((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93)


def turn(query, ranking):
    """What the code of one query subtracts from keys: from its bytes, and how sure each bit is."""
    unsure = np.zeros(query.n_bits, np.float32)
    if ranking == "soft" and query.uncertainty is not None:
        unsure = query.uncertainty[0]
    sure = [round(float(np.float32(UNITS) * (np.float32(1) - np.float32(2) * one))) for one in unsure]
    told = query.bits[0].tolist() + sure
    return key(_signed(sum(number * key(place) for place, number in enumerate(told))))


def turned(ids, query, ranking):
    """The places of ids among equal distances to a query."""
    start = turn(query, ranking)
    return [(key(id_) - start + 2**63) % 2**64 - 2**63 for id_ in ids]


def _signed(number):
    return (number + 2**63) % 2**64 - 2**63
