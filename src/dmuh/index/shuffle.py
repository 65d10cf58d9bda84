"""The order of equal answers: ids by a fixed shuffle, which no order of files, classes or dates shows through."""

import numpy as np
from numpy.typing import NDArray


def shuffled(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the key of each id: of equal answers, the one with the smaller key comes first.

    Different ids have different keys: each step can be undone. The same id has the same key at all times and places.
    """
    key = np.ascontiguousarray(ids, np.int64).view(np.uint64).copy()
    key ^= key >> np.uint64(32)
    key *= np.uint64(0x9E3779B97F4A7C15)  # modulo 2^64
    key ^= key >> np.uint64(29)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    key ^= key >> np.uint64(32)
    return key
