"""The tables of a catalogue, and the checksum of each row, by which an altered one is noticed.

Version 1 had no checksums; such a file is converted when it is opened.
"""

import logging
import sqlite3
from zlib import crc32

from dmuh.errors import FormatError

log = logging.getLogger(__name__)

_APPLICATION, _VERSION = 0x646D7568, 2  # "dmuh" in ASCII, so that other programs' files are refused
IMAGE = "images.id, path, added, stamp, labels, metadata, uncertainty, bit_uncertainty, images.checksum"
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- of the image
  bit_uncertainty BLOB,    -- float32, one per bit
  checksum INTEGER NOT NULL
);
CREATE INDEX by_path ON images (path, added);
CREATE INDEX by_uncertainty ON images (uncertainty DESC, id);
CREATE TABLE codes (id INTEGER PRIMARY KEY, code BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY, checksum INTEGER NOT NULL) WITHOUT ROWID;
"""  # codes stand apart, because all of them are read at every start
_FROM_1 = """
ALTER TABLE about RENAME TO old_about;
ALTER TABLE images RENAME TO old_images;
ALTER TABLE codes RENAME TO old_codes;
ALTER TABLE forgotten RENAME TO old_forgotten;
DROP INDEX by_path;
DROP INDEX by_uncertainty;
DROP TABLE labels;
"""
_TO_2 = """
INSERT INTO about SELECT key, value, note_checksum(key, value) FROM old_about;
INSERT INTO images SELECT id, path, added, stamp, labels, metadata, uncertainty, bit_uncertainty,
  image_checksum(id, path, added, stamp, labels, metadata, uncertainty, bit_uncertainty) FROM old_images ORDER BY id;
INSERT INTO codes SELECT id, code, code_checksum(id, code) FROM old_codes ORDER BY id;
INSERT INTO labels SELECT DISTINCT value, images.id FROM images, json_each(labels) ORDER BY value, images.id;
INSERT INTO forgotten SELECT path, path_checksum(path) FROM old_forgotten;
DROP TABLE old_about;
DROP TABLE old_images;
DROP TABLE old_codes;
DROP TABLE old_forgotten;
"""


def image_checksum(
    id_: int, path: bytes, added: int, stamp: int | None, labels: str, metadata: str,
    uncertainty: float | None, bit_uncertainty: bytes | None,
) -> int:  # fmt: skip
    """Return the checksum of a row of `images`."""
    numbers = f"{id_} {added:d} {stamp} {uncertainty!r} {bit_uncertainty is None}"
    texts = f"{numbers}\0{labels}\0{metadata}\0".encode()
    return crc32(bit_uncertainty or b"", crc32(path, crc32(texts)))


def code_checksum(id_: int, code: bytes) -> int:
    """Return the checksum of a row of `codes`."""
    return crc32(code, (id_ ^ id_ >> 32) & 0xFFFFFFFF)


def note_checksum(key: str, value: str) -> int:
    """Return the checksum of a row of `about`."""
    return crc32(f"{key}\0{value}".encode())


def path_checksum(path: bytes) -> int:
    """Return the checksum of a row of `forgotten`."""
    return crc32(path)


def prepare(connection: sqlite3.Connection) -> bool:
    """Create the tables of a new file, or check those of an old one; return whether it was converted from version 1."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    old = bool(tables) and (application, version) == (_APPLICATION, 1)
    if old:
        _convert(connection)
    elif not tables:
        _create_tables(connection)
        write_note(connection, "last", "0")
    elif (application, version) != (_APPLICATION, _VERSION):
        raise FormatError("it was not made by this version of dmuh")
    if _statements(connection) != _statements(_example()):
        raise FormatError("its tables are not those of a catalogue")
    return old


def write_note(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Write a row of `about`."""
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", (key, value, note_checksum(key, value)))


def check_structure(connection: sqlite3.Connection) -> None:
    """Raise if SQLite finds anything wrong with its pages or with its indexes."""
    (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise FormatError(f"it is damaged ({' '.join(said.split())})")


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _convert(connection: sqlite3.Connection) -> None:
    """Convert version 1 to version 2, in the transaction that is open."""
    log.info("the catalogue is of an older dmuh: its rows get checksums, once")
    check_structure(connection)
    for function, n in ((image_checksum, 8), (code_checksum, 2), (note_checksum, 2), (path_checksum, 1)):
        connection.create_function(function.__name__, n, function, deterministic=True)
    (last,) = connection.execute("SELECT max(ifnull(max(id), 0), (SELECT ifnull(max(seq), 0) FROM sqlite_sequence)) "
                                 "FROM images").fetchone()  # fmt: skip
    for statement in _FROM_1.strip().split("\n"):
        connection.execute(statement)
    _create_tables(connection)
    for statement in _TO_2.split(";\n"):
        connection.execute(statement)
    write_note(connection, "last", str(last))


def _example() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _create_tables(connection)
    return connection


def _statements(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return the statements that made the tables and indexes of a file, without those that SQLite adds by itself."""
    return set(
        connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'")
    )
