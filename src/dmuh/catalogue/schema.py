"""The tables of a catalogue, and the checksum of each row, by which an altered one is noticed."""

import sqlite3
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from dmuh.errors import FormatError

APPLICATION, VERSION = 0x646D7568, 4  # "dmuh" in ASCII, so that other programs' files are refused
DECISIONS = """CREATE TABLE decisions (
  path BLOB NOT NULL,      -- of the image, whose id is another one when its file comes back
  added INTEGER NOT NULL,
  kind TEXT NOT NULL,      -- accept, skip or own
  given TEXT NOT NULL,     -- JSON: the labels that the image had then
  labels TEXT NOT NULL,    -- JSON: those that it shall have
  checksum INTEGER NOT NULL,
  PRIMARY KEY (path, added)
) WITHOUT ROWID"""
SCHEMA = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- share of its bits that is expected to turn over
  checksum INTEGER NOT NULL
);
CREATE INDEX by_path ON images (path, added);
CREATE INDEX by_uncertainty ON images (uncertainty DESC, id);
CREATE TABLE codes (
  id INTEGER PRIMARY KEY,
  code BLOB NOT NULL,
  levels BLOB,             -- how sure each bit is: one or two planes, each packed as the code
  contents INTEGER,        -- digest of what the network gave for the image, which only identical images share
  checksum INTEGER NOT NULL
);
CREATE INDEX by_contents ON codes (contents);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY, checksum INTEGER NOT NULL) WITHOUT ROWID;
{DECISIONS};
"""  # codes stand apart, because all of them are read at every start


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


class Rows(NamedTuple):
    """The columns of `images` and `codes`, each with its checksum last, and what computes it from the others.

    The fifth column of an image has its labels. `decision` has the columns of `decisions`, if there is such a table.
    """

    image: str
    image_checksum: Callable[..., int]
    code: str
    code_checksum: Callable[..., int]
    decision: str = ""


ROWS = Rows(
    "images.id, path, added, stamp, labels, metadata, uncertainty, images.checksum", image_checksum,
    "codes.id, code, levels, contents, codes.checksum", code_checksum,
    "path, added, kind, given, labels, checksum",
)  # fmt: skip


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, in the transaction that is open."""
    for statement in SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_tables(connection: sqlite3.Connection) -> None:
    """Raise unless the tables and indexes are those of a catalogue, and no others."""
    example = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(example)
    if _statements(connection) != _statements(example):
        raise FormatError("its tables are not those of a catalogue")


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
