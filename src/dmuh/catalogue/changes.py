"""The count of changes: which codes were added, removed or replaced since an index file was written."""

import sqlite3
from collections.abc import Sequence

from dmuh.catalogue.integrity import is_intact
from dmuh.catalogue.schema import change_checksum, write_note


def note_changes(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Count a change of the codes with these ids, in the transaction that makes it."""
    (before,) = connection.execute("SELECT value FROM about WHERE key = 'changed'").fetchone()
    rows = [(n, id_, change_checksum(n, id_)) for n, id_ in enumerate(ids, start=int(before) + 1)]
    connection.executemany("INSERT INTO changes VALUES (?, ?, ?)", rows)
    write_note(connection, "changed", str(int(before) + len(rows)))


def changes_since(connection: sqlite3.Connection, n: int, last: int) -> tuple[list[int] | None, bool]:
    """Return the ids that changed after the nth change up to the last, and whether all rows are intact.

    None where they are not known: they were taken into an index file that was written since.
    """
    rows = connection.execute("SELECT n, id, checksum FROM changes WHERE n > ? ORDER BY n", (n,)).fetchall()
    if [row[0] for row in rows] != list(range(n + 1, last + 1)):
        return None, True
    return sorted({row[1] for row in rows}), all(is_intact(change_checksum, row) for row in rows)
