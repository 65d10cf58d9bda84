"""A binary index of FAISS: IndexBinaryIDMap over IndexBinaryFlat, as faiss.read_index_binary reads it.

The file is, in the byte order of x86 and ARM:

    IBMp  header  IBxF  header  bytes of all codes (uint64), codes  number of ids (uint64), ids (int64)

where a header is the number of bits (int32), the bytes of a code (int32), the number of codes (int64), whether it is
trained (uint8) and the metric (int32), which binary indexes do not use. FAISS counts bits in whole bytes; those that a
code does not have are zero and change no distance. It has no place for levels of sureness.
"""

import struct
from pathlib import Path

import numpy as np

from dmuh.handover.sources import CodeSource

MAGIC = b"IBMp"
_FLAT = b"IBxF"
_L2 = 1  # the metric that FAISS gives its binary indexes


def write_faiss(source: CodeSource, file: Path, name: str) -> None:
    """Write the codes and ids of a source."""
    del name
    header = struct.pack("<iiq?i", 8 * source.width, source.width, source.n, True, _L2)
    with file.open("wb") as out:
        out.write(MAGIC + header + _FLAT + header + struct.pack("<Q", source.n * source.width))
        for codes in source.codes():
            out.write(np.ascontiguousarray(codes.bits).data)
        out.write(struct.pack("<Q", source.n))
        for codes in source.codes():
            out.write(codes.ids.astype("<i8").data)
