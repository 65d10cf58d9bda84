"""What tells a collection's folder from others, before anything in it is read or replaced."""

import sqlite3
from contextlib import closing
from pathlib import Path

from dmuh.catalogue import Catalogue
from dmuh.catalogue.index_file import is_index_file
from dmuh.catalogue.schema import APPLICATION
from dmuh.errors import DataError

INDEX = "index"  # the note `source` of a collection's catalogue
_HEAD, _MARK, _AT = 72, b"SQLite format 3\0", 68  # of a file of SQLite: the id of its application begins here


def kind_of(file: Path) -> str | None:
    """Return what a catalogue says that its images are: those of an index or of a folder; None if it is none.

    A catalogue that cannot be read is taken for an index: opening it says what is wrong.
    """
    if not is_catalogue(file):
        return None
    try:
        address = f"{file.absolute().as_uri()}?immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            row = connection.execute("SELECT value FROM about WHERE key = 'source'").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the latter from SQLite's error, which quotes the file
        return INDEX
    return None if row is None else str(row[0])


def is_catalogue(file: Path) -> bool:
    """Return whether a file begins as a catalogue does."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD)
    except OSError:
        return False
    return head.startswith(_MARK) and int.from_bytes(head[_AT:_HEAD], "big") == APPLICATION


def refuse_other_files(folder: Path, catalogue: Path, index: Path, *, is_earlier: bool) -> None:
    """Raise if a folder has files of a collection's names that are not a collection's and must stay."""
    taken = [] if not catalogue.exists() or is_catalogue(catalogue) else [catalogue.name]
    if index.exists() and not (is_index_file(index) and (is_catalogue(catalogue) or is_earlier)):
        taken.append(index.name)
    if taken:
        raise DataError(
            f"{folder} has {' and '.join(taken)}, but not as this dmuh writes them: nothing is replaced, so choose "
            "another folder"
        )


def refuse_to_lose(catalogue: Catalogue, folder: Path) -> None:
    """Raise if a catalogue has what images cannot be indexed again from: what people did through a service."""
    source = catalogue.about("source")
    if source not in (None, INDEX):
        raise DataError(f"{folder} is where a service keeps its catalogue: choose another folder")
    known = {
        "images that were added": len(catalogue.added_files()),
        "removals": len(catalogue.forgotten()),
        "decisions on labels": len(catalogue.decisions()),
    }
    kept = [f"{n:,} {what}" for what, n in known.items() if n]
    if kept:
        raise DataError(
            f"{folder} has {' and '.join(kept)}, which would be lost: bring it up to date by --sync, or give another "
            "--out"
        )
