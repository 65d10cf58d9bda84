"""An .npz file: codes, ids, levels and what these are worth, as numpy.load reads them, without pickle.

codes    uint8 (n, ceil(n_bits / 8)): bit k of a code is bit k % 8 of byte k // 8
ids      int64 (n,)
n_bits   int64 ()
levels   uint8 (n, 1 or 2, ceil(n_bits / 8)), where codes have levels of sureness, packed as the codes are
worth    float32 (n_bits, 2 or 4), what each level of each bit stands for
"""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.handover.sources import CodeSource

MAGIC = b"PK"


def write_numpy(source: CodeSource, file: Path, name: str) -> None:
    """Write the codes of a source, one array after the other."""
    del name
    n, width = source.n, source.width
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:

        def write(name: str, shape: tuple[int, ...], dtype: str, rows: Callable[[Codes], NDArray[Any] | None]) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                npy.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
                for codes in source.codes():
                    out.write(np.ascontiguousarray(rows(codes), dtype).data)

        write("codes", (n, width), "|u1", lambda codes: codes.bits)
        write("ids", (n,), "<i8", lambda codes: codes.ids)
        whole = {"n_bits": np.array(source.n_bits, "<i8")}
        if source.worth is not None:
            write("levels", (n, source.sure, width), "|u1", lambda codes: codes.levels)
            whole["worth"] = source.worth.astype("<f4")
        for name, array in whole.items():
            with archive.open(f"{name}.npy", "w") as out:
                npy.write_array(out, array, allow_pickle=False)
