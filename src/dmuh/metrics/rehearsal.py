"""Tiny evaluations that take every compiled pass, so that these are compiled or loaded."""

from collections.abc import Callable
from functools import partial

import numpy as np

from dmuh.codes import Codes
from dmuh.index.kernel_use import only
from dmuh.metrics import pairs, soft
from dmuh.metrics.figures import Rules

_N = 16


def rehearsals() -> dict[str, Callable[[], None]]:
    """Return what compiles the kernels, by the name of what they do."""
    return {
        "evaluation of codes of at most 32 bits": partial(_rehearse, 32),
        "evaluation of codes of more than 32 bits": partial(_rehearse, 64),
    }


def _rehearse(n_bits: int) -> None:
    codes = Codes(np.arange(_N * n_bits // 8, dtype=np.uint8).reshape(_N, -1), n_bits)
    same, different = np.ones((_N, 1), np.uint8), np.eye(_N, dtype=np.uint8)
    rules = Rules(cut=_N, most=0, ranks=np.arange(1, 3), near=0)
    with only(compiled=True):
        for kind in (pairs, soft):
            for labels in (same, different):  # one pass for images that share their labels, one for those that do not
                kind.expect(codes[:1], codes, labels[:1], labels, rules)
            kind.rank(codes[:1], codes, same[:1], same, rules, np.zeros(1, np.int64))
