"""Database: the SQLite file of a catalogue; one connection per thread, transactions, errors as sentences."""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from dmuh.catalogue.integrity import ALTERED, ChecksumFile, check_whole
from dmuh.catalogue.schema import check_tables
from dmuh.catalogue.versions import is_older, prepare
from dmuh.errors import CatalogueError, DmuhError, FormatError, RequestError

log = logging.getLogger(__name__)

_WAIT = 5.0  # seconds for another program to end its change: less than a request may take
_UNUSABLE = "the catalogue cannot be used: "
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}


class Database:
    """The file of a catalogue; threads may share it. Use it as a context manager, or close it.

    With `read_only` nothing is written but what opening a file of an older version asks for, and the folder need not be
    one that can be written to.
    """

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        self.file = file
        self._read_only = read_only
        self._immutable = read_only and not _is_writable(file)
        self._checksum_file = ChecksumFile(file)
        self._ready, self._sound, self._changed = False, False, False
        self._per_thread = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._writing = threading.Lock()
        if not read_only:
            file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
        except DmuhError as error:
            self.close()
            reason = str(error).removeprefix(_UNUSABLE)
            raise FormatError(f"{file} cannot be used as a catalogue: {reason}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, in all threads."""
        for connection in self._opened:
            connection.close()
        if self._sound and self._changed and not self._immutable:
            with suppress(OSError):  # if the disk is full: then the next start checks every row
                self._checksum_file.write()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction of all that is done inside: it is on the disk afterwards, or nothing of it happened."""
        connection = self._connection()
        if connection.in_transaction:  # part of a larger transaction
            yield connection
            return
        with self._writing, self._explained():
            connection.execute("BEGIN IMMEDIATE")
            before = connection.total_changes
            try:
                yield connection
                connection.commit()
                self._changed = self._changed or connection.total_changes > before
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Have all that is read inside, by this thread, be of one moment, whatever other programs change meanwhile."""
        connection = self._connection()
        if connection.in_transaction:
            yield
            return
        with self._explained():
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.rollback()

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._explained():
            return self._connection().execute(query, values).fetchall()

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        return self._read(query, values)[0]

    def _check(self, sound: bool) -> None:
        if not sound:
            raise self._damaged(ALTERED)

    def _damaged(self, reason: str) -> CatalogueError:
        """Return the error that a request gets; only the log names the file."""
        self._sound = False  # so that close() writes no checksum, and the next start checks every row
        if self._ready:  # else the error that ends the start says it
            log.error("%s: %s", self.file, reason)
        return CatalogueError(500, f"{_UNUSABLE}{reason}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into sentences."""
        try:
            yield
        except sqlite3.ProgrammingError:  # a mistake in dmuh
            raise
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is None:  # Python found a text that is not UTF-8
                raise self._damaged(ALTERED) from error
            if code & 0xFF in _BUSY:
                said = "another program is changing the catalogue: try again in a moment"
                raise RequestError(503, said) from error
            if code in FULL:
                raise RequestError(507, f"there is no room left for the catalogue: {error}") from error
            raise self._damaged(" ".join(str(error).split())) from error
        except UnicodeDecodeError as error:  # the text of SQLite's error itself, which quotes the row
            raise self._damaged(ALTERED) from error

    def _connection(self) -> sqlite3.Connection:
        """Return the connection of this thread."""
        if not hasattr(self._per_thread, "connection"):
            with self._explained():
                address = f"{self.file.absolute().as_uri()}{'?immutable=1' if self._immutable else ''}"
                connection = sqlite3.connect(
                    address, uri=True, isolation_level=None, check_same_thread=False, timeout=_WAIT
                )
                self._opened.append(connection)
                connection.execute("PRAGMA trusted_schema = OFF")  # nothing in a file may run by being read
                connection.execute("PRAGMA synchronous = FULL")
                self._per_thread.connection = connection
        return self._per_thread.connection  # type: ignore[no-any-return]

    def _open(self) -> None:
        """Create the tables of a new file, or check that this one is a catalogue, as it was written."""
        self._checksum_file.check_present()
        if self._immutable and self._checksum_file.has_log:
            raise FormatError("it was not closed, and its folder cannot be written to: open it once where it can be")
        unchanged = self._checksum_file.is_large or self._checksum_file.matches()
        converted = False
        with self._explained():
            if self._read_only and not self._is_older():
                with self.snapshot():
                    check_tables(self._connection())
                    if not unchanged:
                        check_whole(self._connection())
            else:
                self._connection().execute("PRAGMA journal_mode = WAL")
                with self.transaction() as connection:
                    converted = prepare(connection)
                    if not (unchanged or converted):
                        check_whole(connection)
                if converted:
                    with suppress(sqlite3.OperationalError):  # if the disk is full, the file stays larger than needed
                        connection.execute("VACUUM")
        self._ready, self._sound, self._changed = True, True, converted or not unchanged

    def _is_older(self) -> bool:
        """Return whether the file has to be converted first; raise if it cannot be."""
        older = is_older(self._connection())
        if older and self._immutable:
            raise FormatError("it is of an older dmuh, and its folder cannot be written to: open it where it can be")
        return older


def _is_writable(file: Path) -> bool:
    """Return whether SQLite can write to a file, and beside it."""
    return os.access(file.parent, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))
