"""What is done with a file when it is opened: a new one gets its tables, one of an older version is converted.

Version 1 had no checksums. Versions 1 and 2 had a number per bit that was called its uncertainty and is no probability
that the bit turns over; it is left out, and so is that of the image. Codes of then have no levels of sureness, and
what copies of them in Milvus have is not enough for a soft search: a new copy is made. Version 3 had no decisions on
labels, and version 4 no count of changes; all else stays as it is.
"""

import logging
import sqlite3
from zlib import crc32

from dmuh.catalogue.integrity import check_whole
from dmuh.catalogue.schema import (
    APPLICATION,
    CHANGES,
    DECISIONS,
    INDEXES,
    ROWS,
    VERSION,
    Rows,
    begin,
    check_structure,
    check_tables,
    code_checksum,
    create_tables,
    image_checksum,
    note_checksum,
    path_checksum,
    write_note,
)
from dmuh.errors import FormatError

log = logging.getLogger(__name__)

WITHOUT_LEVELS = "null"  # the note `worth` of a catalogue whose codes have no levels
_SET_ASIDE = """
ALTER TABLE about RENAME TO old_about;
ALTER TABLE images RENAME TO old_images;
ALTER TABLE codes RENAME TO old_codes;
ALTER TABLE forgotten RENAME TO old_forgotten;
DROP INDEX by_path;
DROP INDEX by_uncertainty;
DROP TABLE labels
"""
_TAKE_OVER = """
INSERT OR REPLACE INTO about SELECT key, value, note_checksum(key, value) FROM old_about;
INSERT INTO images SELECT id, path, added, stamp, labels, metadata, NULL,
  image_checksum(id, path, added, stamp, labels, metadata, NULL) FROM old_images ORDER BY id;
INSERT INTO codes SELECT id, code, NULL, NULL, code_checksum(id, code, NULL, NULL) FROM old_codes ORDER BY id;
INSERT INTO labels SELECT DISTINCT value, images.id FROM images, json_each(labels) ORDER BY value, images.id;
INSERT INTO forgotten SELECT path, path_checksum(path) FROM old_forgotten;
DROP TABLE old_about;
DROP TABLE old_images;
DROP TABLE old_codes;
DROP TABLE old_forgotten
"""


def is_older(connection: sqlite3.Connection) -> bool:
    """Return whether a file is a catalogue of an older version; raise if it is another program's, or newer."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION or not 0 < version <= VERSION:
        raise FormatError("it was not made by this version of dmuh")
    return bool(version < VERSION)


def prepare(connection: sqlite3.Connection) -> bool:
    """Create the tables of a new file, or check those of an old one; return whether it was converted.

    A transaction is open: a conversion happens whole or not at all.
    """
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        create_tables(connection)
        begin(connection)
    old = is_older(connection)
    if old:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        _convert(connection, version) if version < 3 else _extend(connection, version)
    check_tables(connection)
    return old


def _extend(connection: sqlite3.Connection, version: int) -> None:
    """Convert a file of version 3 or 4, once all of it is found to be as it was written."""
    check_whole(connection, ROWS._replace(change="", decision=ROWS.decision if version > 3 else ""))
    (last,) = connection.execute("SELECT value FROM about WHERE key = 'last'").fetchone()
    for statement in [*([DECISIONS] if version < 4 else []), CHANGES, INDEXES["by_added"]]:
        connection.execute(statement)
    begin(connection)
    write_note(connection, "last", last)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _convert(connection: sqlite3.Connection, version: int) -> None:
    """Convert a file of version 1 or 2."""
    log.info("the catalogue is of an older dmuh: it is converted, once, without its uncertainties: no probabilities")
    if version == 1:
        check_structure(connection)
        query = (
            "SELECT max(ifnull(max(id), 0), (SELECT ifnull(max(seq), 0) FROM sqlite_sequence)), count(*) FROM images"
        )
        last, n_images = connection.execute(query).fetchone()
    else:
        check_whole(connection, _ROWS_2)
        (n_images,) = connection.execute("SELECT count(*) FROM images").fetchone()
    for function, n in ((image_checksum, 7), (code_checksum, 4), (note_checksum, 2), (path_checksum, 1)):
        connection.create_function(function.__name__, n, function, deterministic=True)
    for statement in _SET_ASIDE.split(";\n"):
        connection.execute(statement)
    create_tables(connection)
    begin(connection)
    for statement in _TAKE_OVER.split(";\n"):
        connection.execute(statement)
    if version == 1:  # the last id that was given; version 2 has it among its notes
        write_note(connection, "last", str(last))
    if n_images:
        write_note(connection, "worth", WITHOUT_LEVELS)
    for (name,) in connection.execute("DELETE FROM about WHERE key = 'milvus' RETURNING value").fetchall():
        log.warning("its copy in Milvus is made anew: the collection %s there is not used any more", name)


def _image_checksum_2(
    id_: int, path: bytes, added: int, stamp: int | None, labels: str, metadata: str,
    uncertainty: float | None, bit_uncertainty: bytes | None,
) -> int:  # fmt: skip
    numbers = f"{id_} {added:d} {stamp} {uncertainty!r} {bit_uncertainty is None}"
    texts = f"{numbers}\0{labels}\0{metadata}\0".encode()
    return crc32(bit_uncertainty or b"", crc32(path, crc32(texts)))


def _code_checksum_2(id_: int, code: bytes) -> int:
    return crc32(code, (id_ ^ id_ >> 32) & 0xFFFFFFFF)


_ROWS_2 = Rows(
    "images.id, path, added, stamp, labels, metadata, uncertainty, bit_uncertainty, images.checksum", _image_checksum_2,
    "codes.id, code, codes.checksum", _code_checksum_2,
)  # fmt: skip
