"""Checks that a catalogue is as it was written: by the checksum of its whole file when it was closed, or row by row."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dmuh.catalogue.schema import (
    ROWS,
    Rows,
    change_checksum,
    check_structure,
    decision_checksum,
    note_checksum,
    path_checksum,
)
from dmuh.errors import FormatError
from dmuh.files import write_text

_SMALLEST = 512  # bytes of a file of SQLite
_SEALED = 16_000_000  # bytes of a file that is checked whole when it is opened, a few tenths of a second
ALTERED = "what stands in it was altered after it was written: a checksum does not fit"


@dataclass(frozen=True)
class ChecksumFile:
    """The SHA-256 of a catalogue that was closed properly, in a file beside it.

    If it matches, the rows need not be checked, which takes a few times as long. If it does not, as after a crash or
    for a copy from a backup, nothing is wrong yet: every row is checked.

    A large catalogue has none, so that it opens at once: each row is checked when it is read.
    """

    catalogue: Path

    @property
    def file(self) -> Path:
        """The checksum's file, in the format of `sha256sum`."""
        return self.catalogue.with_name(f"{self.catalogue.name}.sha256")

    @property
    def log(self) -> Path:
        """The file in which SQLite keeps changes that are not in the catalogue yet."""
        return self.catalogue.with_name(f"{self.catalogue.name}-wal")

    def check_present(self) -> None:
        """Raise if the catalogue is missing or empty, but files beside it say that there was one."""
        if _filled(self.catalogue):
            if self.catalogue.stat().st_size < _SMALLEST:  # which SQLite would take for an empty one
                raise FormatError("it is cut short")
        else:
            beside = next((file for file in (self.file, self.log) if _filled(file)), None)
            if beside is not None:
                raise FormatError(
                    f"it is missing or empty, but {beside.name} is left of it: put it back, or give another --state"
                )

    @property
    def has_log(self) -> bool:
        """Whether there are changes that are not in the catalogue's own file yet."""
        return _filled(self.log)

    @property
    def is_large(self) -> bool:
        """Whether the catalogue is so large that it is not looked through whenever it is opened."""
        return sum(file.stat().st_size for file in (self.catalogue, self.log) if file.is_file()) > _SEALED

    def matches(self) -> bool:
        """Return whether the catalogue is exactly as it was closed."""
        if not _filled(self.catalogue) or _filled(self.log):
            return False
        with suppress(OSError, UnicodeDecodeError):
            return self.file.read_text() == self._line()
        return False

    def write(self) -> None:
        """Write the checksum of a catalogue that was closed, unless another program has it open, or it is large."""
        if self.is_large:
            self.file.unlink(missing_ok=True)
        elif not _filled(self.log):
            write_text(self.file, self._line())

    def _line(self) -> str:
        with self.catalogue.open("rb") as file:
            return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {self.catalogue.name}\n"


def is_intact(checksum_of: Callable[..., int], row: Sequence[Any]) -> bool:
    """Return whether the last column of a row is the checksum of the others, which may be of any type by damage."""
    try:
        return bool(checksum_of(*row[:-1]) == row[-1])
    except (TypeError, ValueError, AttributeError):  # a column has another type than it was written with
        return False


def check_whole(connection: sqlite3.Connection, rows: Rows = ROWS) -> None:
    """Raise if anything in a catalogue is damaged: its structure, a row, or what one table says of another.

    `rows` are those of the version that it has.
    """
    check_structure(connection)
    last = 0
    for note in connection.execute("SELECT key, value, checksum FROM about"):
        _check(is_intact(note_checksum, note))
        last = int(note[1]) if note[0] == "last" else last
    tables: list[tuple[str, str, Callable[..., int]]] = [
        ("forgotten", "path, checksum", path_checksum),
        ("codes", rows.code, rows.code_checksum),
        ("decisions", rows.decision, decision_checksum),
        ("changes", rows.change, change_checksum),
    ]
    for table, columns, checksum_of in tables:
        for row in connection.execute(f"SELECT {columns} FROM {table}") if columns else ():
            _check(is_intact(checksum_of, row))
    labelled, n, highest = 0, 0, 0
    labels_of = lru_cache(4096)(lambda text: frozenset(json.loads(text)))
    for image in connection.execute(f"SELECT {rows.image} FROM images ORDER BY id"):
        _check(is_intact(rows.image_checksum, image))
        n, highest = n + 1, image[0]
        labelled += sum([hash((label, highest)) for label in labels_of(image[4])])
    _check(labelled == sum(map(hash, connection.execute("SELECT label, id FROM labels"))))
    counts = "SELECT (SELECT count(*) FROM codes), (SELECT count(*) FROM codes JOIN images USING (id))"
    _check(connection.execute(counts).fetchone() == (n, n) and highest <= last)


def _check(sound: bool) -> None:
    if not sound:
        raise FormatError(ALTERED)


def _filled(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
