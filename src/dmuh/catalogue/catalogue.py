"""Catalogue: the images of a service with their codes, labels and metadata, in one SQLite file.

A change that was acknowledged is on the disk: SQLite writes it ahead to its log (WAL) and waits for the disk
(synchronous=FULL), so that it survives a crash of the process and of the machine. No id is used twice. Every row has
a checksum, which is checked whenever the row is read.

Changes of codes are counted (the table `changes`), so that an index file is caught up with what changed since it was
written: see `dmuh.catalogue.index_file`.
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.changes import note_changes
from dmuh.catalogue.decisions import Decision, write_decision
from dmuh.catalogue.reading import CatalogueReader
from dmuh.catalogue.rows import Entry, Row, code_row, image_row, insert, sure_bits, worth_note
from dmuh.catalogue.schema import code_checksum, image_checksum, path_checksum, write_note
from dmuh.codes import Codes
from dmuh.errors import DataError


class Catalogue(CatalogueReader):
    """The images of an index or a service; threads may share it. Use it as a context manager, or close it."""

    def note(self, **values: str) -> None:
        """Write notes on the catalogue itself."""
        for key, value in values.items():
            if self.about(key) != value:
                with self.transaction() as connection:
                    write_note(connection, key, value)

    def settle(self, worth: NDArray[np.float32] | None) -> None:
        """Settle, once, what the levels of the codes stand for, None for codes without; raise if that is otherwise."""
        text, settled = worth_note(worth), self.about("worth")
        if settled is None:
            self.note(worth=text)
        elif settled != text and self.sure != sure_bits(worth):
            raise DataError(
                f"{self.file} holds codes with {self.sure} sure bits per bit, got codes with {sure_bits(worth)}: give "
                f"--sure {self.sure}, or another --state"
            )
        elif settled != text:
            raise DataError(f"{self.file} holds codes whose sure bits mean something else: give another --state")

    def forget_changes(self, state: str) -> None:
        """Forget which codes changed up to a state, once an index file of it is on the disk."""
        with self.transaction() as connection:
            if self.is_state(state):
                connection.execute("DELETE FROM changes WHERE n <= ?", (int(state.partition(" ")[2]),))

    def add(self, entries: Iterable[Entry], codes: Codes) -> list[int]:
        """Add images, all or none; the ids of the codes are ignored. Returns the images' ids."""
        mean = codes.image_uncertainty
        unsure: list[Any] = [None] * len(codes) if mean is None else mean.tolist()
        ids = []
        with self.transaction() as connection:
            self.settle(codes.worth)
            self.note(bits=str(codes.n_bits))
            last = int(self.about("last") or 0)
            for row, entry in enumerate(entries):
                id_ = last + 1 if entry.id is None else entry.id
                last = max(last, id_)
                image = image_row(id_, entry, unsure[row])
                insert(connection, image, code_row(id_, codes, row), entry.labels)
                ids.append(id_)
            write_note(connection, "last", str(last))
            note_changes(connection, ids)
        return ids

    def remove(self, id_: int, *, forget: bool = True) -> Row | None:
        """Remove an image and return its row, or None; with `forget` its file is not added again at the next start."""
        with self.transaction() as connection:
            row = self.row(id_)
            if row is None:
                return None
            for label in json.loads(row.labels):
                connection.execute("DELETE FROM labels WHERE label = ? AND id = ?", (label, id_))
            connection.execute("DELETE FROM codes WHERE id = ?", (id_,))
            connection.execute("DELETE FROM images WHERE id = ?", (id_,))
            note_changes(connection, [id_])
            if forget and not row.added:
                values = (row.path, path_checksum(row.path))
                connection.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", values)
        return row

    def restore(self, row: Row) -> None:
        """Add an image that was removed, as it was; its file is no longer forgotten."""
        with self.transaction() as connection:
            code = (row.id, row.code, row.levels, row.contents)
            insert(connection, row[:7], (*code, code_checksum(*code)), json.loads(row.labels))
            connection.execute("DELETE FROM forgotten WHERE path = ?", (row.path,))
            note_changes(connection, [row.id])

    def describe(self, id_: int, labels: Sequence[str], metadata: dict[str, str]) -> None:
        """Replace the labels and the metadata of an image."""
        with self.transaction() as connection:
            row = self.row(id_)
            if row is None:
                return
            image = (*row[:4], json.dumps(list(labels)), json.dumps(metadata), row.uncertainty)
            connection.executemany(
                "DELETE FROM labels WHERE label = ? AND id = ?", [(label, id_) for label in json.loads(row.labels)]
            )
            connection.execute(
                "UPDATE images SET labels = ?, metadata = ?, checksum = ? WHERE id = ?",
                (*image[4:6], image_checksum(*image), id_),
            )
            connection.executemany("INSERT INTO labels VALUES (?, ?)", sorted({(label, id_) for label in labels}))

    def remember(self, paths: Iterable[str]) -> None:
        """Have files that were removed be added again where they are found."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM forgotten WHERE path = ?", [(os.fsencode(path),) for path in paths])

    def decide(self, id_: int, decision: Decision | None) -> bool:
        """Keep what a person said of the labels of an image, or take it back; return whether there is such an image.

        It is kept by the path of the image: it outlasts a removal, and holds as long as the labels are what they were.
        """
        with self.transaction() as connection:
            row = self.row(id_)
            if row is not None:
                write_decision(connection, row.path, row.added, row.labels, decision)
        return row is not None
