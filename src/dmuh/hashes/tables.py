"""HashTable: a CSV or Parquet file of hashes, with ids, paths, labels and metadata where it has them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.datasets.csv_list import LABEL_COLUMNS, PATH_COLUMNS, csv_rows
from dmuh.errors import ConfigError, DataError, unknown
from dmuh.shards.sources.parquet import arrow

CSV, PARQUET = (".csv", ".tsv"), (".parquet",)
_TOGETHER = 65_536  # rows of a Parquet file that are in memory at a time
_HASH_COLUMNS = ("hash", "code", "value")


@dataclass(frozen=True)
class HashColumns:
    """Columns as a user names them; those that are not named are found by their usual names.

    integers   whether texts in the column of hashes are whole numbers, not hexadecimal digits
    separator  between two labels, a semicolon if not given
    """

    hash: str = ""
    path: str = ""
    label: str = ""
    separator: str = ""
    integers: bool = False


@dataclass(frozen=True)
class HashRow:
    """One row: its number from 0, the hash as the file has it, and what is known of the image."""

    number: int
    hash: Any
    id: Any
    path: str
    labels: list[str]
    metadata: dict[str, str]


class HashTable:
    """A file of hashes; its rows can be read any number of times.

    The hashes are in the column that is named, or in the one that is called as the hash, such as phash, or hash. Paths
    are relative to the file. A column `id` has whole numbers; another one is metadata, and rows are counted instead.
    """

    def __init__(self, file: Path, name: str, columns: HashColumns) -> None:
        self.file = file
        self._separator = columns.separator or ";"
        self._is_parquet = file.suffix.lower() in PARQUET
        if not self._is_parquet and file.suffix.lower() not in CSV:
            raise ConfigError(f"hashes are read from .csv, .tsv and .parquet files, got {file}")
        names = self._names()
        usual = (name, f"{name}hash", f"{name}_hash", *_HASH_COLUMNS)
        found = self._column(columns.hash, usual, names)
        if found is None:
            raise DataError(
                f"{file} has no column {' or '.join((name, *_HASH_COLUMNS))}: say which has the hashes by "
                f"--hash-column, of {', '.join(names)}"
            )
        self._hash = found
        self._path = self._column(columns.path, PATH_COLUMNS, names)
        self._label = self._column(columns.label, LABEL_COLUMNS, names)
        self.has_ids = False
        id_ = self._column("", ("id",), names)
        first = next(self._rows([id_]), None) if id_ else None
        if id_ and first and _whole(first[id_]) is not None:
            self.has_ids = True
        self._id = id_ if self.has_ids else None
        used = {self._hash, self._path, self._label, self._id}
        self._rest = [column for column in names if column not in used and self._is_plain(column)]

    def rows(self) -> Iterator[HashRow]:
        """Yield all rows."""
        wanted = [column for column in (self._hash, self._path, self._label, self._id) if column]
        for number, row in enumerate(self._rows([*wanted, *self._rest])):
            yield HashRow(
                number,
                row[self._hash],
                self._whole_id(number, row),
                self._path_of(row),
                self._labels_of(row),
                {column: str(row[column]) for column in self._rest if row[column] not in (None, "")},
            )

    def place(self, number: int) -> str:
        """Return what a message calls a row."""
        return f"{self.file}, row {number + 1}"

    def _whole_id(self, number: int, row: dict[str, Any]) -> int:
        if self._id is None:
            return number
        found = _whole(row[self._id])
        if found is None:
            raise DataError(
                f"{self.place(number)}: an id must be a whole number from 0 to 2^63 - 1, got {row[self._id]!r}"
            )
        return found

    def _path_of(self, row: dict[str, Any]) -> str:
        """Return the whole path of an image; an address of the web stays as it is."""
        given = row[self._path] if self._path else None
        if given is None or given == "":
            return ""
        return str(given) if "://" in str(given) else str(self.file.absolute().parent / str(given))

    def _labels_of(self, row: dict[str, Any]) -> list[str]:
        given = row[self._label] if self._label else None
        if isinstance(given, list):
            return [str(label) for label in given if label is not None]
        return [part.strip() for part in str(given or "").split(self._separator) if part.strip()]

    def _names(self) -> list[str]:
        if self._is_parquet:
            _, parquet = arrow()
            with self._reading():
                self._schema = parquet.read_schema(self.file)
                return list(self._schema.names)
        first = next(csv_rows(self.file), None)
        if first is None:
            raise DataError(f"{self.file} lists no hashes")
        return list(first)

    def _column(self, given: str, usual: Sequence[str], names: list[str]) -> str | None:
        if given and given not in names:
            raise DataError(f"{self.file}: {unknown('column', given, names)}")
        by_name = {column.lower(): column for column in reversed(names)}
        return given or next((by_name[column] for column in usual if column in by_name), None)

    def _is_plain(self, column: str) -> bool:
        """Return whether the values of a column are kept as texts: of a Parquet file, numbers, texts and dates are."""
        if not self._is_parquet:
            return True
        pa, _ = arrow()
        kind = self._schema.field(column).type
        return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
                    or pa.types.is_fixed_size_binary(kind))  # fmt: skip

    def _rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        if not self._is_parquet:
            yield from csv_rows(self.file)
            return
        _, parquet = arrow()
        with self._reading(), parquet.ParquetFile(self.file) as opened:
            for batch in opened.iter_batches(_TOGETHER, columns=columns):
                yield from batch.to_pylist()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn errors of pyarrow about a damaged file into a sentence."""
        pa, _ = arrow()
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.file} is cut short or not a Parquet file: {error}") from error


def _whole(value: Any) -> int | None:
    """Return an id, from 0 to 2^63 - 1, or None if it is none."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
