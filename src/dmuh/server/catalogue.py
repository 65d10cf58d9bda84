"""Catalogue: what the service knows of its images, in one SQLite file.

A change that was acknowledged is on the disk: SQLite writes it ahead to its log (WAL) and waits for the disk
(synchronous=FULL), so that it survives a crash of the process and of the machine. Ids are never given twice.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmuh.codes import Codes
from dmuh.errors import FormatError

_APPLICATION, _VERSION = 0x646D7568, 1  # "dmuh", so that other programs' files are refused
_MANY = 65_536  # rows that are fetched together
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- of the image
  bit_uncertainty BLOB     -- float32, one a bit
);
CREATE INDEX by_path ON images (path, added);
CREATE INDEX by_uncertainty ON images (uncertainty DESC, id);
CREATE TABLE codes (id INTEGER PRIMARY KEY, code BLOB NOT NULL);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY) WITHOUT ROWID;
"""  # codes stand apart, because all of them are read at every start
_ROW = """SELECT images.id, path, added, labels, metadata, uncertainty, bit_uncertainty, code
FROM images JOIN codes USING (id)"""
ORDERS = {"uncertainty": "uncertainty DESC, images.id", "id": "images.id"}


class Row(NamedTuple):
    """One image as the catalogue keeps it: labels and metadata are JSON, bit uncertainty is float32 bytes."""

    id: int
    path: bytes
    added: int
    labels: str
    metadata: str
    uncertainty: float | None
    bit_uncertainty: bytes | None
    code: bytes


@dataclass(frozen=True)
class Entry:
    """What is to be known of a new image beside its code; without an id it gets the next one."""

    path: str
    labels: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    id: int | None = None
    added: bool = False
    stamp: int | None = None


class Catalogue:
    """The images of one service; threads may share it. Use it as a context manager, or close it."""

    def __init__(self, file: Path, n_bits: int) -> None:
        self.file = file
        self.n_bits = n_bits
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._writing = threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._create()
        except (sqlite3.DatabaseError, FormatError) as error:
            self.close()
            raise FormatError(f"{file} cannot be used as a catalogue: {error}") from error

    def __enter__(self) -> "Catalogue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, in all threads."""
        for connection in self._opened:
            connection.close()

    def __len__(self) -> int:
        return int(self._read("SELECT count(*) FROM codes").fetchone()[0])

    def about(self, key: str) -> str | None:
        """Return what was noted of the catalogue itself: which model made its codes, and from which images."""
        row = self._read("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, **values: str) -> None:
        """Note something of the catalogue itself."""
        with self.changing() as connection:
            connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", values.items())

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Make one change of all that is done inside: it is on the disk afterwards, or nothing of it happened."""
        connection = self._connection()
        if connection.in_transaction:  # part of a larger change
            yield connection
            return
        with self._writing:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def add(self, entries: Iterable[Entry], codes: Codes) -> list[int]:
        """Add images, all or none; the ids of the codes are not looked at. Returns the images' ids."""
        unsure = codes.image_uncertainty
        ids = []
        with self.changing() as connection:
            for row, entry in enumerate(entries):
                bits = None if codes.uncertainty is None else codes.uncertainty[row].tobytes()
                cursor = connection.execute(
                    "INSERT INTO images (id, path, added, stamp, labels, metadata, uncertainty, bit_uncertainty) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        entry.id, os.fsencode(entry.path), entry.added, entry.stamp, json.dumps(list(entry.labels)),
                        json.dumps(entry.metadata), None if unsure is None else float(unsure[row]), bits,
                    ),
                )  # fmt: skip
                id_ = cursor.lastrowid
                assert id_ is not None
                connection.execute("INSERT INTO codes VALUES (?, ?)", (id_, codes.bits[row].tobytes()))
                labels = sorted({(label, id_) for label in entry.labels})
                connection.executemany("INSERT INTO labels VALUES (?, ?)", labels)
                ids.append(id_)
        return ids

    def remove(self, id_: int, *, forget: bool = True) -> Row | None:
        """Remove an image and return what it was, or None; `forget` keeps its file from coming back by itself."""
        with self.changing() as connection:
            row = self.row(id_)
            if row is None:
                return None
            for label in json.loads(row.labels):
                connection.execute("DELETE FROM labels WHERE label = ? AND id = ?", (label, id_))
            connection.execute("DELETE FROM codes WHERE id = ?", (id_,))
            connection.execute("DELETE FROM images WHERE id = ?", (id_,))
            if forget and not row.added:
                connection.execute("INSERT OR REPLACE INTO forgotten VALUES (?)", (row.path,))
        return row

    def row(self, id_: int) -> Row | None:
        """Return what is known of an image, or None."""
        found = self._read(f"{_ROW} WHERE images.id = ?", (id_,)).fetchone()
        return None if found is None else Row(*found)

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """Return what is known of images, of those that are there, in no order."""
        asked = list(ids)
        if not asked:
            return []
        query = f"{_ROW} WHERE images.id IN (SELECT value FROM json_each(?))"
        return [Row(*found) for found in self._read(query, (json.dumps(asked),))]

    def id_of(self, path: str, *, added: bool) -> int | None:
        """Return the id of the image with this path, exactly as it was added, or None; of several the first."""
        query = "SELECT min(id) FROM images WHERE path = ? AND added = ?"
        found: int | None = self._read(query, (_encoded(path), added)).fetchone()[0]
        return found

    def listed(self, order: str, n: int, offset: int = 0, label: str | None = None) -> list[Row]:
        """Return images, or those with a label, in one of the ORDERS: the least certain first, or by id."""
        cut = f"ORDER BY {ORDERS[order]} LIMIT ? OFFSET ?"
        if label is None:
            return [Row(*found) for found in self._read(f"{_ROW} {cut}", (n, offset))]
        query = f"{_ROW} JOIN labels USING (id) WHERE label = ? {cut}"
        return [Row(*found) for found in self._read(query, (label, n, offset))]

    def sample(self, n: int, label: str | None = None, seed: int | None = None) -> list[Row]:
        """Return some images, or some of those with a label, drawn at random."""
        table, known = ("codes WHERE TRUE", ()) if label is None else ("labels WHERE label = ?", (label,))
        first, last = (self._read(f"SELECT {end}(id) FROM {table}", known).fetchone()[0] for end in ("min", "max"))
        if first is None:
            return []
        rng = np.random.default_rng(seed)
        few = last - first < 4 * n  # then all are looked at, else those that come next behind random ids
        starts = rng.permutation(np.arange(first, last + 1)) if few else rng.integers(first, last, 2 * n, endpoint=True)
        ids = {}  # a dictionary keeps the order in which they were drawn
        for start in starts.tolist():
            (id_,) = self._read(f"SELECT min(id) FROM {table} AND id >= ?", (*known, start)).fetchone()
            ids[id_] = self.row(id_)
        return [row for row in ids.values() if row is not None][:n]

    def labels(self) -> dict[str, int]:
        """Return every label with how many images have it."""
        return dict(self._read("SELECT label, count(*) FROM labels GROUP BY label ORDER BY label"))

    def codes(self, label: str | None = None) -> Codes:
        """Return the codes of all images, or of those with a label, without uncertainty, by id."""
        if label is None:
            rows = self._read("SELECT id, code FROM codes ORDER BY id")
        else:
            rows = self._read("SELECT id, code FROM labels JOIN codes USING (id) WHERE label = ? ORDER BY id", (label,))
        ids, bits = [np.empty(0, np.int64)], [b""]
        while many := rows.fetchmany(_MANY):
            own_ids, own_codes = zip(*many, strict=True)
            ids.append(np.array(own_ids, np.int64))
            bits.append(b"".join(own_codes))
        packed = np.frombuffer(b"".join(bits), np.uint8).reshape(-1, -(-self.n_bits // 8))
        return Codes(packed, self.n_bits, ids=np.concatenate(ids))

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the id and the stamp of every image of the collection's folder, by path."""
        rows = self._read("SELECT path, id, stamp FROM images WHERE NOT added")
        return {os.fsdecode(path): (id_, stamp) for path, id_, stamp in rows}

    def added_files(self) -> set[str]:
        """Return the names of the files that came through the service."""
        return {os.fsdecode(path) for (path,) in self._read("SELECT path FROM images WHERE added")}

    def forgotten(self) -> set[str]:
        """Return the paths that were removed and are not to come back by themselves."""
        return {os.fsdecode(path) for (path,) in self._read("SELECT path FROM forgotten")}

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        return self._connection().execute(query, values)

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's own connection."""
        if not hasattr(self._own, "connection"):
            connection = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False, timeout=30)
            self._opened.append(connection)
            connection.execute("PRAGMA trusted_schema = OFF")  # nothing in a file may run by being read
            connection.execute("PRAGMA synchronous = FULL")
            self._own.connection = connection
        return self._own.connection  # type: ignore[no-any-return]

    def _create(self) -> None:
        """Lay out a new file, or check that this one is a catalogue."""
        connection = self._connection()
        connection.execute("PRAGMA journal_mode = WAL")
        with self.changing():
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if not tables:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            elif (application, version) != (_APPLICATION, _VERSION):
                raise FormatError("it was not made by this version of dmuh")


def _encoded(path: str) -> bytes:
    """Return a path as the file system spells it; one that it cannot spell is no image's."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return b""
