"""Peers of soft search: indexes of FAISS that take a real query and keep a few bits per output."""

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

TRAINED_ON = 50_000  # outputs that a quantiser is trained on


def real_peers(outputs: NDArray[np.float32], seed: int = 0) -> Iterator[tuple[str, float, Any]]:
    """Yield name, bytes per image and the filled index of each peer over real outputs (n, n_bits), one after the other.

    They rank by inner product. n_bits must be a multiple of 4. A product quantiser has the bytes of plain codes, one
    of 4 bits for 4 outputs, or of codes with one bit of sureness, one of 4 bits for 2 outputs.
    """
    n_bits, product = outputs.shape[1], faiss.METRIC_INNER_PRODUCT
    chosen = np.random.default_rng(seed).permutation(len(outputs))[:TRAINED_ON]
    kinds = faiss.ScalarQuantizer
    made = {
        "IndexPQFastScan, 4 outputs together": lambda: faiss.IndexPQFastScan(n_bits, n_bits // 4, 4, product),
        "IndexPQFastScan, 2 outputs together": lambda: faiss.IndexPQFastScan(n_bits, n_bits // 2, 4, product),
        "IndexRaBitQ": lambda: faiss.IndexRaBitQ(n_bits, product),
        "IndexRaBitQ of 2 bits": lambda: faiss.IndexRaBitQ(n_bits, product, 2),
        "IndexRaBitQFastScan": lambda: faiss.IndexRaBitQFastScan(n_bits, product),
        "IndexScalarQuantizer of 4 bits": lambda: faiss.IndexScalarQuantizer(n_bits, kinds.QT_4bit, product),
        "IndexScalarQuantizer of 8 bits": lambda: faiss.IndexScalarQuantizer(n_bits, kinds.QT_8bit, product),
    }
    for name, make in made.items():
        index = make()
        index.train(np.ascontiguousarray(outputs[chosen]))
        index.add(np.ascontiguousarray(outputs))
        yield name, index.sa_code_size(), index
