"""The tables of a catalogue, and the checksum of each row, by which an altered one is noticed."""

import secrets
import sqlite3
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from dmuh.errors import FormatError

APPLICATION, VERSION = 0x646D7568, 5  # "dmuh" in ASCII, so that other programs' files are refused
DECISIONS = """CREATE TABLE decisions (
  path BLOB NOT NULL,      -- of the image, whose id is another one when its file comes back
  added INTEGER NOT NULL,
  kind TEXT NOT NULL,      -- accept, skip or own
  given TEXT NOT NULL,     -- JSON: the labels that the image had then
  labels TEXT NOT NULL,    -- JSON: those that it shall have
  checksum INTEGER NOT NULL,
  PRIMARY KEY (path, added)
) WITHOUT ROWID"""
CHANGES = """CREATE TABLE changes (
  n INTEGER PRIMARY KEY,   -- counts the changes of codes
  id INTEGER NOT NULL,     -- whose code was added, removed or replaced
  checksum INTEGER NOT NULL
)"""
INDEXES = {  # made last where many rows are written at once
    "by_path": "CREATE INDEX by_path ON images (path, added)",
    "by_added": "CREATE INDEX by_added ON images (path) WHERE added",
    "by_uncertainty": "CREATE INDEX by_uncertainty ON images (uncertainty DESC, id)",
    "by_contents": "CREATE INDEX by_contents ON codes (contents)",
}
SCHEMA = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- how unsure the image is as a whole
  checksum INTEGER NOT NULL
);
CREATE TABLE codes (
  id INTEGER PRIMARY KEY,
  code BLOB NOT NULL,
  levels BLOB,             -- how sure each bit is: one or two planes, each packed as the code
  contents INTEGER,        -- digest of what the network gave for the image, which only identical images share
  checksum INTEGER NOT NULL
);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY, checksum INTEGER NOT NULL) WITHOUT ROWID;
{DECISIONS};
{CHANGES};
"""  # codes stand apart, because all of them are read where an index is made


def image_checksum(
    id_: int, path: bytes, added: int, stamp: int | None, labels: str, metadata: str, uncertainty: float | None
) -> int:
    """Return the checksum of a row of `images`."""
    return crc32(path, crc32(f"{id_} {added:d} {stamp} {uncertainty!r}\0{labels}\0{metadata}\0".encode()))


def code_checksum(id_: int, code: bytes, levels: bytes | None, contents: int | None) -> int:
    """Return the checksum of a row of `codes`."""
    known = crc32(code, (id_ ^ id_ >> 32) & 0xFFFFFFFF)
    if levels is not None:
        known = crc32(levels, known ^ 1)
    return known if contents is None else crc32(contents.to_bytes(8, "little", signed=True), known ^ 2)


def note_checksum(key: str, value: str) -> int:
    """Return the checksum of a row of `about`."""
    return crc32(f"{key}\0{value}".encode())


def path_checksum(path: bytes) -> int:
    """Return the checksum of a row of `forgotten`."""
    return crc32(path)


def decision_checksum(path: bytes, added: int, kind: str, given: str, labels: str) -> int:
    """Return the checksum of a row of `decisions`."""
    return crc32(path, crc32(f"{added:d}\0{kind}\0{given}\0{labels}\0".encode()))


def change_checksum(n: int, id_: int) -> int:
    """Return the checksum of a row of `changes`."""
    return crc32(f"{n:d} {id_:d}".encode())


class Rows(NamedTuple):
    """The columns of `images` and `codes`, each with its checksum last, and what computes it from the others.

    The fifth column of an image has its labels. `decision` and `change` have the columns of `decisions` and `changes`,
    if there are such tables.
    """

    image: str
    image_checksum: Callable[..., int]
    code: str
    code_checksum: Callable[..., int]
    decision: str = ""
    change: str = ""


ROWS = Rows(
    "images.id, path, added, stamp, labels, metadata, uncertainty, images.checksum", image_checksum,
    "codes.id, code, levels, contents, codes.checksum", code_checksum,
    "path, added, kind, given, labels, checksum", "n, id, checksum",
)  # fmt: skip


def create_tables(connection: sqlite3.Connection, *, indexes: bool = True) -> None:
    """Create the tables, in the transaction that is open; without `indexes` the caller makes those later."""
    for statement in [*SCHEMA.split(";\n"), *(INDEXES.values() if indexes else ())]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_tables(connection: sqlite3.Connection) -> None:
    """Raise unless the tables and indexes are those of a catalogue, and no others."""
    example = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(example)
    if _statements(connection) != _statements(example):
        raise FormatError("its tables are not those of a catalogue")


def begin(connection: sqlite3.Connection, epoch: str | None = None) -> None:
    """Write the notes of a file without images: no id was given, no code changed, no file is its index."""
    write_note(connection, "last", "0")
    restart(connection, epoch)


def restart(connection: sqlite3.Connection, epoch: str | None = None) -> None:
    """Have no index file that was written before be of this catalogue any more."""
    connection.execute("DELETE FROM changes")
    write_note(connection, "changed", "0")
    write_note(connection, "epoch", epoch or secrets.token_hex(32))


def write_note(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Write a row of `about`."""
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", (key, value, note_checksum(key, value)))


def check_structure(connection: sqlite3.Connection) -> None:
    """Raise if SQLite finds anything wrong with its pages or with its indexes."""
    (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise FormatError(f"it is damaged ({' '.join(said.split())})")


def _statements(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return the statements that made the tables and indexes of a file, without those that SQLite adds by itself."""
    return set(
        connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'")
    )
