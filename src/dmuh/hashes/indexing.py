"""index_hashes: a file of hashes becomes a collection."""

import logging
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.errors import ConfigError, DataError, InputError
from dmuh.hashes.model import digest_of_hash
from dmuh.hashes.tables import HashColumns, HashRow, HashTable
from dmuh.hashes.values import hash_bytes
from dmuh.images import OnBadImage

log = logging.getLogger(__name__)

_NAME = re.compile("[a-z0-9][a-z0-9_.+-]{0,31}")
_WIDTHS = {"pdq": 256}  # hashes that have one length alone


def index_hashes(
    file: str | Path,
    name: str,
    out: str | Path,
    columns: HashColumns | None = None,
    *,
    on_bad_hash: OnBadImage = "fail",
) -> Collection:
    r"""Make a collection of hashes that another program computed; return it, still without an index.

    file         a .csv, .tsv or .parquet file with a row per image: the hash as hexadecimal digits, bytes or a whole
                 number; and, if it has them, columns of ids, paths, labels and whatever else is known
    name         what the hash is called, such as phash or pdq
    on_bad_hash  "skip" leaves out rows without a hash, or with something else in its place

    >>> _ = (folder / "hashes.csv").write_text("path,phash\na.jpg,8f373714acfcf4d0\nb.jpg,8f373714acfcf4d1\n")
    >>> collection = dmuh.hashes.index_hashes(folder / "hashes.csv", "phash", folder / "hashes.index")
    >>> collection.build_index().search(dmuh.Codes.from_hex(["8f373714acfcf4d3"]), k=1)[0].ids
    array([[1]])
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a hash must have a name of small letters and digits, such as phash, got {name!r}")
    table, collection = HashTable(Path(file), name, columns or HashColumns()), Collection(Path(out))
    integers = columns is not None and columns.integers
    codes, bad = _read(table, name, integers, on_bad_hash)
    if bad:
        log.warning("%s rows of %s have no hash and were left out", f"{len(bad):,}", file)
    items = (_item(row, code) for row, code in zip(_without(table.rows(), bad), codes.bits, strict=True))
    collection.write_items(codes, items, Path(file), digest_of_hash(name))
    return collection


def _read(table: HashTable, name: str, integers: bool, on_bad_hash: OnBadImage) -> tuple[Codes, set[int]]:
    """Return the codes of a table, and the numbers of rows that have none."""
    packed, ids, bad = bytearray(), array("q"), set()
    width = _WIDTHS.get(name, 0) // 8
    for row in table.rows():
        try:
            found = hash_bytes(row.hash, integers=integers)
            width = width or len(found)
            if len(found) != width:
                raise InputError(
                    f"all hashes must have {8 * width} bits, as {'pdq has' if name in _WIDTHS else 'the first has'}, "
                    f"got {8 * len(found)}: {found.hex()}"
                )
        except InputError as error:
            if on_bad_hash == "fail":
                raise DataError(f"{table.place(row.number)}: {error}") from error
            bad.add(row.number)
            continue
        packed += found
        ids.append(row.id)
    if not ids:
        raise DataError(f"{table.file} lists no hashes")
    bits = np.frombuffer(packed, np.uint8).reshape(len(ids), width)
    try:
        return Codes(bits, 8 * width, ids=np.frombuffer(ids, np.int64)), bad
    except InputError as error:
        raise DataError(f"{table.file}: {error}") from error


def _without(rows: Iterator[HashRow], bad: set[int]) -> Iterator[HashRow]:
    return (row for row in rows if row.number not in bad)


def _item(row: HashRow, code: NDArray[np.uint8]) -> Item:
    """Return what is known of a row; one without a path is called by its hash."""
    return Item(row.id, row.path or code.tobytes().hex(), row.labels, None, row.metadata)
