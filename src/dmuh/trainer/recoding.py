"""Where codes are better placed by kinds than by signs alone, as images that did not train have shown."""

import numpy as np
from numpy.typing import NDArray

from dmuh.encoder.recoding import Recoding
from dmuh.trainer.kinds import majorities, own_precision

Floats = NDArray[np.float64]

_MOST = 200  # kinds, above which there are too few images of each to know its code
_PART = 4  # of the bits, the most of them that are changed
_GAIN = 0.005  # of MAP, below which codes are left as they are


def find_recoding(outputs: NDArray[np.float32], similar: Floats) -> tuple[Recoding | None, float, float]:
    """Return how codes are better placed, if they are; and the MAP of n images among themselves before and after.

    outputs  float32 (n, n_bits)
    similar  0/1 (n, n): which images are
    """
    before = _map(outputs, similar)
    signs = np.where(np.unique(majorities(outputs, similar)[similar.any(axis=1)], axis=0) >= 0, 1, -1).astype(np.int8)
    signs = np.unique(signs, axis=0)
    if not 2 <= len(signs) <= _MOST:
        return None, before, before
    kind, lead = Recoding(signs, np.empty(0), 0).likeliest(outputs)
    farthest = int((outputs * signs[kind] < 0).sum(axis=1).max())
    tried = [Recoding(signs, _steps(lead, n_steps), farthest) for n_steps in range(1, outputs.shape[1] // _PART + 1)]
    found = [(_map(recoding.outputs(outputs), similar), -len(recoding.steps), recoding) for recoding in tried]
    if not found:
        return None, before, before
    after, _, best = max(found, key=lambda each: each[:2])
    return (best if after >= before + _GAIN else None), before, after


def _steps(lead: Floats, n_steps: int) -> Floats:
    """Return so many steps at quantiles of the images' leads (n,): the more bits are changed, the fewer images have it.

    The surest images have the code of their kind: of six steps 38% of the images are above the first.
    """
    steps: Floats = np.quantile(lead, 1 - np.sqrt(np.arange(1, n_steps + 1) / (n_steps + 1)))
    return steps


def _map(outputs: NDArray[np.float32], similar: Floats) -> float:
    known = similar.any(axis=1)
    return float(own_precision(outputs, similar)[known].mean()) if known.any() else 0.0
