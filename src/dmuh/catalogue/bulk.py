"""A catalogue that is written at once: many images, part after part, into a file beside that then takes its place.

Nothing waits for the disk until all is written, and the indexes are made last, sorted: a few times as quick as adding.
What is killed on the way leaves a file of another name, and whatever was there before.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dmuh.catalogue.database import FULL
from dmuh.catalogue.integrity import ChecksumFile
from dmuh.catalogue.rows import Entry, code_rows, image_row, worth_note
from dmuh.catalogue.schema import INDEXES, begin, create_tables, image_checksum, write_note
from dmuh.codes import Codes
from dmuh.errors import DataError
from dmuh.files import written_whole

_CACHE = -65_536  # kilobytes of pages that are kept in memory, less than zero as SQLite has it
Part = tuple[Codes, Sequence[Entry]]


def write_catalogue(file: Path, parts: Iterable[Part], notes: Mapping[str, str], epoch: str | None = None) -> int:
    """Write a catalogue of images, whose ids are those of their codes; return how many there are.

    parts  codes, all of one model, and the entries of their images in the same order; at least one part
    notes  what is said of the catalogue itself
    epoch  what tells its codes from those of others; random if not given

    The caller must hold the lock by which no other process uses the file, and have closed the one that it replaces.
    """
    with written_whole(file) as temporary, closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
        with _explained(file):
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA cache_size = {_CACHE}")
            connection.execute("BEGIN")
            create_tables(connection, indexes=False)
            begin(connection, epoch)
            n_images = _fill(connection, parts)
            for key, value in notes.items():
                write_note(connection, key, value)
            for statement in INDEXES.values():
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        ChecksumFile(file).file.unlink(missing_ok=True)
    ChecksumFile(file).write()
    return n_images


def _fill(connection: sqlite3.Connection, parts: Iterable[Part]) -> int:
    """Insert all rows; return how many images there are."""
    n_images, last = 0, 0
    for number, (codes, entries) in enumerate(parts):
        if len(codes) != len(entries):
            raise DataError(f"{len(codes):,} codes were given for {len(entries):,} images")
        if not number:
            write_note(connection, "worth", worth_note(codes.worth))
            write_note(connection, "bits", str(codes.n_bits))
        images = _images(codes, entries)
        connection.executemany(
            f"INSERT INTO images VALUES ({'?, ' * 7}?)", ((*image, image_checksum(*image)) for image in images)
        )
        connection.executemany(
            f"INSERT INTO codes VALUES ({'?, ' * 4}?)",
            code_rows(codes, codes.ids.tolist()),
        )
        connection.executemany(
            "INSERT INTO labels VALUES (?, ?)",
            (
                (label, id_)
                for id_, entry in zip(codes.ids.tolist(), entries, strict=True)
                for label in set(entry.labels)
            ),
        )
        n_images += len(codes)
        last = max(last, int(codes.ids.max(initial=0)))
    write_note(connection, "last", str(last))
    return n_images


def _images(codes: Codes, entries: Sequence[Entry]) -> Iterator[tuple[Any, ...]]:
    mean = codes.image_uncertainty
    unsure: list[Any] = [None] * len(codes) if mean is None else mean.tolist()
    return map(image_row, codes.ids.tolist(), entries, unsure)


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise DataError(f"{file} cannot be written: two images have one id") from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) in FULL:
            raise DataError(f"there is no room left for {file}: make room and give the same command again") from error
        raise DataError(f"{file} cannot be written: {error}") from error
