"""Whether a catalogue is as it was written: its whole file, row by row, or by the seal of its last proper closing."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dmuh.errors import FormatError
from dmuh.files import write_text
from dmuh.server.layout import IMAGE, check_structure, code_checksum, image_checksum, note_checksum, path_checksum

_SMALLEST = 512  # bytes of a file of SQLite
ALTERED = "what stands in it was altered after it was written: a checksum does not fit"


@dataclass(frozen=True)
class Seal:
    """The SHA-256 of a catalogue that was closed properly, in a file beside it.

    Where it fits, the catalogue need not be looked through, which takes a few times as long. Where it does not, as
    after a crash or for a copy that was put back, nothing is wrong yet.
    """

    catalogue: Path

    @property
    def file(self) -> Path:
        """The file that holds it, as `sha256sum` writes such files."""
        return self.catalogue.with_name(f"{self.catalogue.name}.sha256")

    @property
    def log(self) -> Path:
        """The file in which SQLite keeps changes that are not in the catalogue yet."""
        return self.catalogue.with_name(f"{self.catalogue.name}-wal")

    def check_present(self) -> None:
        """Raise if the catalogue is missing or empty, but what lies beside it says that there was one."""
        if _filled(self.catalogue):
            if self.catalogue.stat().st_size < _SMALLEST:  # which SQLite would take for an empty one
                raise FormatError("it is cut short")
        else:
            beside = next((file for file in (self.file, self.log) if _filled(file)), None)
            if beside is not None:
                raise FormatError(
                    f"it is missing or empty, but {beside.name} is left of it: put it back, or give another --state"
                )

    def fits(self) -> bool:
        """Return whether the catalogue is exactly as it was closed."""
        if not _filled(self.catalogue) or _filled(self.log):
            return False
        with suppress(OSError, UnicodeDecodeError):
            return self.file.read_text() == self._line()
        return False

    def write(self) -> None:
        """Seal a catalogue that was closed; one that other programs have open still is not sealed."""
        if not _filled(self.log):
            write_text(self.file, self._line())

    def _line(self) -> str:
        with self.catalogue.open("rb") as file:
            return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {self.catalogue.name}\n"


def fits(checksum_of: Callable[..., int], row: Sequence[Any]) -> bool:
    """Return whether the last column of a row is the checksum of the others, whatever these have become."""
    try:
        return bool(checksum_of(*row[:-1]) == row[-1])
    except (TypeError, ValueError):  # of a column that has changed its type
        return False


def check_whole(connection: sqlite3.Connection) -> None:
    """Raise if anything in a catalogue does not fit: structure, rows, or what one table says of another."""
    check_structure(connection)
    last = 0
    for note in connection.execute("SELECT key, value, checksum FROM about"):
        _check(fits(note_checksum, note))
        last = int(note[1]) if note[0] == "last" else last
    for table, columns, checksum_of in (
        ("forgotten", "path, checksum", path_checksum), ("codes", "id, code, checksum", code_checksum)
    ):  # fmt: skip
        for row in connection.execute(f"SELECT {columns} FROM {table}"):
            _check(fits(checksum_of, row))
    labelled, n, highest = 0, 0, 0
    labels_of = lru_cache(4096)(lambda text: frozenset(json.loads(text)))
    for image in connection.execute(f"SELECT {IMAGE} FROM images ORDER BY id"):
        _check(fits(image_checksum, image))
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
