r"""A Parquet file of codes, which any reader of Arrow opens, and from which `dmuh index` makes an index again.

id           int64
path         string, null where there is none; a byte that is not UTF-8 is shown by its number, as in caf\xe9.jpg
labels       list of strings
metadata     map of strings to strings
code         fixed-size binary: bit k of a code is bit k % 8 of byte k // 8
levels       fixed-size binary, where codes have levels of sureness: one plane or two, packed as the code
contents     int64, a digest by which identical images are found, or null
uncertainty  float32, how unsure the image is as a whole, or null

The metadata of its schema say `dmuh.version`, `dmuh.n_bits`, `dmuh.sure`, `dmuh.model`, `dmuh.model_digest` and, in
JSON, `dmuh.worth`: what the levels stand for.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.paths import displayed
from dmuh.codes import Codes
from dmuh.collection import Item
from dmuh.errors import FormatError, InputError
from dmuh.shards.sources.parquet import arrow

if TYPE_CHECKING:
    from dmuh.handover.sources import CodeSource

MAGIC = b"PAR1"
_VERSION = "1"
_TOGETHER = 65_536  # rows of a group


@dataclass(frozen=True)
class TableInfo:
    """What the schema of a file says; as in CodeSource."""

    n: int
    n_bits: int
    worth: NDArray[np.float32] | None
    model: str
    model_digest: str


def write_parquet(source: "CodeSource", file: Path, name: str) -> None:
    """Write the codes of a source, some rows at a time."""
    del name
    pa, parquet = arrow()
    schema = _schema(source)
    with parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as out:
        for codes, items in source.parts():
            for first in range(0, len(codes), _TOGETHER):
                some = slice(first, first + _TOGETHER)
                out.write_table(pa.table(_columns(codes[some], items[some], schema), schema))


def is_handed_over(file: Path) -> bool:
    """Return whether a file is a Parquet file that dmuh handed over."""
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return False
    _, parquet = arrow()
    with _reading(file):
        return b"dmuh.version" in (parquet.read_schema(file).metadata or {})


def open_table(file: Path) -> TableInfo:
    """Read what the schema of a file says."""
    _, parquet = arrow()
    with _reading(file), parquet.ParquetFile(file) as opened:
        said = {key.decode(): value.decode() for key, value in opened.schema_arrow.metadata.items()}
        if said["dmuh.version"] != _VERSION:
            found = said["dmuh.version"]
            raise FormatError(f"{file} is version {found} of a table of codes, this dmuh reads version {_VERSION}")
        worth = json.loads(said["dmuh.worth"])
        return TableInfo(
            opened.metadata.num_rows, int(said["dmuh.n_bits"]), None if worth is None else np.array(worth, np.float32),
            said["dmuh.model"], said["dmuh.model_digest"],
        )  # fmt: skip


def read_table(file: Path) -> Iterator[tuple[Codes, list[Item]]]:
    """Yield the codes of a file with an item for each, some rows at a time."""
    _, parquet = arrow()
    about = open_table(file)
    with _reading(file), parquet.ParquetFile(file, page_checksum_verification=True) as opened:
        for batch in opened.iter_batches(_TOGETHER):
            yield _part(batch, about)


def _part(batch: Any, about: TableInfo) -> tuple[Codes, list[Item]]:
    n, width = len(batch), -(-about.n_bits // 8)
    sure = 0 if about.worth is None else int(about.worth.shape[1]).bit_length() - 1
    contents = batch["contents"]
    ids = batch["id"].to_numpy(zero_copy_only=False)
    codes = Codes(
        _bytes(batch["code"]).reshape(n, width),
        about.n_bits,
        ids=ids,
        levels=_bytes(batch["levels"]).reshape(n, sure, width) if sure else None,
        worth=about.worth,
        contents=None if contents.null_count else contents.to_numpy(zero_copy_only=False),
    )
    rows = zip(
        ids.tolist(),
        *(batch[name].to_pylist() for name in ("path", "labels", "uncertainty", "metadata")),
        strict=True,
    )
    return codes, [
        Item(id_, path or "", labels, None if unsure is None else round(unsure, 6), dict(metadata or ()))
        for id_, path, labels, unsure, metadata in rows
    ]


def _schema(source: "CodeSource") -> Any:
    pa, _ = arrow()
    columns = {
        "id": pa.int64(), "path": pa.string(), "labels": pa.list_(pa.string()),
        "metadata": pa.map_(pa.string(), pa.string()), "code": pa.binary(source.width),
    }  # fmt: skip
    if source.sure:
        columns["levels"] = pa.binary(source.sure * source.width)
    columns |= {"contents": pa.int64(), "uncertainty": pa.float32()}
    worth = None if source.worth is None else source.worth.tolist()
    about = {
        "version": _VERSION, "n_bits": source.n_bits, "sure": source.sure, "model": displayed(source.model),
        "model_digest": source.model_digest, "worth": json.dumps(worth),
    }  # fmt: skip
    needed = {"id", "code", "levels"}
    return pa.schema(
        [pa.field(name, kind, nullable=name not in needed) for name, kind in columns.items()],
        metadata={f"dmuh.{key}": str(value) for key, value in about.items()},
    )


def _columns(codes: Codes, items: list[Item], schema: Any) -> list[Any]:
    """Return the columns of some rows, in the order of the schema."""
    pa, _ = arrow()
    values: dict[str, Any] = {
        "id": codes.ids,
        "path": [displayed(item.path) if item.path else None for item in items],
        "labels": [[displayed(label) for label in item.labels] for item in items],
        "metadata": [[(displayed(key), displayed(value)) for key, value in item.metadata.items()] for item in items],
        "contents": [None] * len(codes) if codes.contents is None else codes.contents,
        "uncertainty": [item.uncertainty for item in items],
    }
    packed = {"code": codes.bits, "levels": codes.levels}
    return [
        _fixed(packed[field.name], len(codes), field.type)
        if field.name in packed
        else pa.array(values[field.name], field.type)
        for field in schema
    ]


def _fixed(rows: NDArray[np.uint8] | None, n: int, kind: Any) -> Any:
    """Return rows of bytes as an array of fixed-size binary values."""
    pa, _ = arrow()
    return pa.FixedSizeBinaryArray.from_buffers(kind, n, [None, pa.py_buffer(np.ascontiguousarray(rows))])


def _bytes(column: Any) -> NDArray[np.uint8]:
    """Return a column of fixed-size binary values as one array, row behind row."""
    size = column.type.byte_width
    _, buffer = column.buffers()
    whole = np.frombuffer(buffer, np.uint8)
    return whole[column.offset * size : (column.offset + len(column)) * size]


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn errors about a damaged file, or one of others, into a sentence."""
    pa, _ = arrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise FormatError(f"{file} is cut short, altered or not a Parquet file of codes: {error}") from error
