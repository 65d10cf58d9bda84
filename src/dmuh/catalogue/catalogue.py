"""Catalogue: the images of a service with their codes, labels and metadata, in one SQLite file.

A change that was acknowledged is on the disk: SQLite writes it ahead to its log (WAL) and waits for the disk
(synchronous=FULL), so that it survives a crash of the process and of the machine. No id is used twice. Every row has
a checksum, which is checked whenever the row is read.

Changes of codes are counted (the table `changes`), so that an index file is caught up with what changed since it was
written: see `dmuh.catalogue.index_file`.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.changes import changes_since, note_changes
from dmuh.catalogue.database import Database
from dmuh.catalogue.decisions import Decision, read_decisions, write_decision
from dmuh.catalogue.integrity import is_intact
from dmuh.catalogue.schema import ROWS, code_checksum, image_checksum, note_checksum, path_checksum, write_note
from dmuh.catalogue.versions import WITHOUT_LEVELS
from dmuh.codes import Codes
from dmuh.errors import DataError, FormatError

_MANY = 65_536  # rows that are fetched together
_ROW = f"SELECT {ROWS.image}, {ROWS.code} FROM images JOIN codes USING (id)"
_IMAGE = 8  # columns of an image in it, with the checksum
_ADDED = "SELECT path FROM images INDEXED BY by_added WHERE added"  # else every path is looked at
MOST_IDENTICAL = 1001  # more than a search asks for
ORDERS = {"uncertainty": "uncertainty DESC, images.id", "id": "images.id"}


class ImageRow(NamedTuple):
    """What is stored of an image beside its code: path by os.fsencode, labels and metadata in JSON."""

    id: int
    path: bytes
    added: int
    stamp: int | None
    labels: str
    metadata: str
    uncertainty: float | None


class Row(NamedTuple):
    """One image as it is stored: path by os.fsencode, labels and metadata in JSON, code and levels packed."""

    id: int
    path: bytes
    added: int
    stamp: int | None
    labels: str
    metadata: str
    uncertainty: float | None
    code: bytes
    levels: bytes | None
    contents: int | None


@dataclass(frozen=True)
class Entry:
    """What is stored of a new image beside its code; without an id it gets the next one.

    `uncertainty` is how unsure it is as a whole, where that is known better than by its code.
    """

    path: str
    labels: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    id: int | None = None
    added: bool = False
    stamp: int | None = None
    uncertainty: float | None = None


class Catalogue(Database):
    """The images of an index or a service; threads may share it. Use it as a context manager, or close it.

    `n_bits` is the length of the codes; without it, what the catalogue says of itself.
    """

    def __init__(self, file: Path, n_bits: int | None = None, *, read_only: bool = False) -> None:
        super().__init__(file, read_only=read_only)
        self.n_bits = self._noted_bits() if n_bits is None else n_bits

    def _noted_bits(self) -> int:
        noted = self.about("bits")
        if noted is None:
            self.close()
            raise FormatError(f"{self.file} does not say how long its codes are: it has none, or is of a service")
        return int(noted)

    @property
    def index_file(self) -> Path:
        """Where the index of its codes is kept."""
        return self.file.with_name("index.safetensors")

    def __len__(self) -> int:
        return int(self._one("SELECT count(*) FROM codes")[0])

    def about(self, key: str) -> str | None:
        """Return a note on the catalogue itself, such as which model made its codes, or None."""
        rows = self._read("SELECT key, value, checksum FROM about WHERE key = ?", (key,))
        self._check(all(is_intact(note_checksum, row) for row in rows))
        return rows[0][1] if rows else None

    def note(self, **values: str) -> None:
        """Write notes on the catalogue itself."""
        for key, value in values.items():
            if self.about(key) != value:
                with self.transaction() as connection:
                    write_note(connection, key, value)

    @property
    def worth(self) -> NDArray[np.float32] | None:
        """What the levels of the codes stand for (n_bits, 2 or 4), as in Codes; None if they have none."""
        values = json.loads(self.about("worth") or WITHOUT_LEVELS)
        return None if values is None else np.array(values, np.float32)

    @property
    def sure(self) -> int | None:
        """How many bits say how sure each bit is: 0, 1 or 2; None as long as that is not settled."""
        if self.about("worth") is None:
            return None
        return _sure(self.worth)

    def settle(self, worth: NDArray[np.float32] | None) -> None:
        """Settle, once, what the levels of the codes stand for, None for codes without; raise if that is otherwise."""
        text, settled = worth_note(worth), self.about("worth")
        if settled is None:
            self.note(worth=text)
        elif settled != text and self.sure != _sure(worth):
            raise DataError(
                f"{self.file} holds codes with {self.sure} sure bits per bit, got codes with {_sure(worth)}: give "
                f"--sure {self.sure}, or another --state"
            )
        elif settled != text:
            raise DataError(f"{self.file} holds codes whose sure bits mean something else: give another --state")

    @property
    def state(self) -> str:
        """What the codes are now: which catalogue they are of, and how many changes there were."""
        return f"{self.about('epoch')} {self.about('changed')}"

    def is_state(self, state: str) -> bool:
        """Return whether this was a state of this catalogue, since all its codes were last replaced."""
        epoch, _, n = state.partition(" ")
        return epoch == self.about("epoch") and n.isdecimal() and int(n) <= int(self.about("changed") or 0)

    def changed_since(self, state: str) -> list[int] | None:
        """Return the ids whose codes were added, removed or replaced since a state; None where that is forgotten."""
        if not self.is_state(state):
            return None
        with self._explained():
            last = int(self.about("changed") or 0)
            ids, sound = changes_since(self._connection(), int(state.partition(" ")[2]), last)
        self._check(sound)
        return ids

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
                _insert(connection, image, code_row(id_, codes, row), entry.labels)
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
            _insert(connection, row[:7], (*code, code_checksum(*code)), json.loads(row.labels))
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

    def row(self, id_: int) -> Row | None:
        """Return an image, or None."""
        return next(iter(self._rows("WHERE images.id = ?", (id_,))), None)

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """Return those of the images that are there, in no order."""
        wanted = json.dumps(list(ids))
        return self._rows("WHERE images.id IN (SELECT value FROM json_each(?))", (wanted,)) if wanted != "[]" else []

    def images(self, ids: Iterable[int] | None = None) -> Iterator[ImageRow]:
        """Yield images without their codes, by id: all, or those of these ids that are there."""
        which, values = "", tuple[Any, ...]()
        if ids is not None:
            which, values = "WHERE id IN (SELECT value FROM json_each(?))", (json.dumps([int(id_) for id_ in ids]),)
        query = f"SELECT {ROWS.image} FROM images {which} ORDER BY id"
        with self._explained(), closing(self._connection().execute(query, values)) as rows:
            while many := rows.fetchmany(_MANY):
                self._check(all(map(is_intact, repeat(image_checksum), many)))
                yield from (ImageRow._make(row[:-1]) for row in many)

    def id_of(self, path: str, *, added: bool) -> int | None:
        """Return the id of the image with this path, exactly as it was added, or None; of several the smallest."""
        found: int | None = self._one(
            "SELECT min(id) FROM images WHERE path = ? AND added = ?", (_encoded(path), added)
        )[0]
        return found

    def listed(self, order: str, n: int, offset: int = 0, label: str | None = None) -> list[Row]:
        """Return images, or those with a label, in one of the ORDERS: the least sure first, or by id."""
        cut = f"ORDER BY {ORDERS[order]} LIMIT ? OFFSET ?"
        if label is None:
            return self._rows(cut, (n, offset))
        return self._rows(f"JOIN labels USING (id) WHERE label = ? {cut}", (label, n, offset))

    def sample(self, n: int, label: str | None = None, seed: int | None = None) -> list[Row]:
        """Return some images, or some of those with a label, drawn at random."""
        table, known = ("codes WHERE TRUE", ()) if label is None else ("labels WHERE label = ?", (label,))
        first, last = (self._one(f"SELECT {end}(id) FROM {table}", known)[0] for end in ("min", "max"))
        if first is None:
            return []
        rng = np.random.default_rng(seed)
        dense = last - first < 4 * n  # then every id is tried in random order, else the next image after each random id
        starts = (
            rng.permutation(np.arange(first, last + 1)) if dense else rng.integers(first, last, 2 * n, endpoint=True)
        )
        ids = {}  # a dictionary keeps the order of the draws
        for start in starts.tolist():
            (id_,) = self._one(f"SELECT min(id) FROM {table} AND id >= ?", (*known, start))
            ids[id_] = self.row(id_)
        return [row for row in ids.values() if row is not None][:n]

    def labels(self) -> dict[str, int]:
        """Return every label with how many images have it."""
        return dict(self._read("SELECT label, count(*) FROM labels GROUP BY label ORDER BY label"))

    def ids(self) -> NDArray[np.int64]:
        """Return the ids of all images, in their order."""
        return np.array([id_ for (id_,) in self._read("SELECT id FROM codes ORDER BY id")], np.int64)

    def uncertainties(self) -> NDArray[np.float64]:
        """Return the uncertainty of each image of which it is known, the largest first."""
        query = "SELECT uncertainty FROM images WHERE uncertainty IS NOT NULL ORDER BY uncertainty DESC"
        with self._explained(), closing(self._connection().execute(query)) as rows:
            return np.fromiter((value for (value,) in rows), np.float64)

    def outline(self) -> list[tuple[int, str, float | None]]:
        """Return id, labels in JSON and uncertainty of every image, by id, for an overview of all of them."""
        return self._read("SELECT id, labels, uncertainty FROM images ORDER BY id")

    def identical_groups(self) -> list[list[int]]:
        """Return the ids of images that are the same as others, one list for each such image, the longest first."""
        query = (
            "SELECT json_group_array(id) FROM codes WHERE contents IS NOT NULL GROUP BY contents HAVING count(*) > 1 "
            "ORDER BY count(*) DESC, min(id)"
        )
        return [sorted(json.loads(ids)) for (ids,) in self._read(query)]

    def identical(self, contents: int, label: str | None = None, *, most: int | None = MOST_IDENTICAL) -> list[int]:
        """Return the ids of `most` images, or of those with a label, that have these contents; None for all."""
        labelled = "" if label is None else "AND EXISTS (SELECT 1 FROM labels WHERE label = ? AND labels.id = codes.id)"
        query = f"SELECT id FROM codes WHERE contents = ? {labelled} LIMIT {-1 if most is None else most}"
        return [id_ for (id_,) in self._read(query, (contents,) if label is None else (contents, label))]

    def codes(self, label: str | None = None) -> Codes:
        """Return the codes of all images, or of those with a label, with their levels, by id."""
        table = "codes" if label is None else "labels JOIN codes USING (id) WHERE label = ?"
        found = self._codes(table, () if label is None else (label,))
        return Codes(found.bits, found.n_bits, ids=found.ids, levels=found.levels, worth=found.worth)

    def some_codes(self, ids: Iterable[int]) -> Codes:
        """Return the codes of those of the images that are there, with levels and contents, by id."""
        wanted = json.dumps([int(id_) for id_ in ids])
        return self._codes("codes WHERE id IN (SELECT value FROM json_each(?))", (wanted,))

    def all_codes(self) -> Codes:
        """Return the codes of all images, with levels and contents, by id."""
        return self._codes("codes", ())

    def _codes(self, table: str, values: tuple[Any, ...]) -> Codes:
        query = f"SELECT {ROWS.code} FROM {table} ORDER BY id"
        ids, bits, levels = [np.empty(0, np.int64)], [b""], [b""]
        contents: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        with self._explained(), closing(self._connection().execute(query, values)) as rows:
            while many := rows.fetchmany(_MANY):
                self._check(all(map(is_intact, repeat(code_checksum), many)))
                part_ids, part_codes, part_levels, part_contents, _ = zip(*many, strict=True)
                ids.append(np.array(part_ids, np.int64))
                bits.append(b"".join(part_codes))
                levels.append(b"".join(filter(None, part_levels)))
                contents.append(np.array([known for known in part_contents if known is not None], np.int64))
        found, worth, width = np.concatenate(ids), self.worth, -(-self.n_bits // 8)
        whole, planes = (np.frombuffer(b"".join(parts), np.uint8) for parts in (bits, levels))
        shape = (len(found), _sure(worth), width)
        self._check(len(whole) == len(found) * width and len(planes) == np.prod(shape))
        own = None if worth is None else planes.reshape(shape)
        known = np.concatenate(contents)
        return Codes(
            whole.reshape(len(found), width), self.n_bits, ids=found, levels=own, worth=worth,
            contents=known if len(known) == len(found) else None,
        )  # fmt: skip

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return id and time of change of every image of the collection's folder, by path."""
        rows = self._read("SELECT path, id, stamp FROM images WHERE NOT added")
        return {os.fsdecode(path): (id_, stamp) for path, id_, stamp in rows}

    def added_files(self) -> set[str]:
        """Return the names of the files that came through the service."""
        return {os.fsdecode(path) for (path,) in self._read(_ADDED)}

    def forgotten(self) -> set[str]:
        """Return the paths of removed images, whose files are not to be added again."""
        rows = self._read("SELECT path, checksum FROM forgotten")
        self._check(all(is_intact(path_checksum, row) for row in rows))
        return {os.fsdecode(path) for path, _ in rows}

    def decide(self, id_: int, decision: Decision | None) -> bool:
        """Keep what a person said of the labels of an image, or take it back; return whether there is such an image.

        It is kept by the path of the image: it outlasts a removal, and holds as long as the labels are what they were.
        """
        with self.transaction() as connection:
            row = self.row(id_)
            if row is not None:
                write_decision(connection, row.path, row.added, row.labels, decision)
        return row is not None

    def decisions(self) -> dict[int, Decision]:
        """Return what was said of the labels of images, by id."""
        with self._explained():
            found, sound = read_decisions(self._connection())
        self._check(sound)
        return found

    def _rows(self, which: str, values: tuple[Any, ...]) -> list[Row]:
        """Return images, after a check of their checksums."""
        rows = []
        for found in self._read(f"{_ROW} {which}", values):
            image, code = found[:_IMAGE], found[_IMAGE:]
            self._check(is_intact(image_checksum, image) and is_intact(code_checksum, code))
            rows.append(Row._make((*image[:-1], *code[1:-1])))
        return rows


def worth_note(worth: NDArray[np.float32] | None) -> str:
    """Return the note of what the levels of codes stand for."""
    return json.dumps(None if worth is None else worth.tolist())


def image_row(id_: int, entry: Entry, unsure: float | None) -> tuple[Any, ...]:
    """Return the row of `images` that an image gets, without its checksum; `unsure` is its uncertainty by its code."""
    return (
        id_, os.fsencode(entry.path), int(entry.added), entry.stamp, json.dumps(list(entry.labels)),
        json.dumps(entry.metadata), unsure if entry.uncertainty is None else entry.uncertainty,
    )  # fmt: skip


def code_row(id_: int, codes: Codes, row: int) -> tuple[int, bytes, bytes | None, int | None, int]:
    """Return the row of `codes` that an image gets, with its checksum."""
    code = (
        id_, codes.bits[row].tobytes(), None if codes.levels is None else codes.levels[row].tobytes(),
        None if codes.contents is None else int(codes.contents[row]),
    )  # fmt: skip
    return (*code, code_checksum(*code))


def _insert(
    connection: sqlite3.Connection, image: tuple[Any, ...], code: tuple[Any, ...], labels: Iterable[str]
) -> None:
    """Insert the row of an image, that of its code with its checksum, and its labels."""
    connection.execute(f"INSERT INTO images VALUES ({'?, ' * 7}?)", (*image, image_checksum(*image)))
    connection.execute(f"INSERT INTO codes VALUES ({'?, ' * 4}?)", code)
    connection.executemany("INSERT INTO labels VALUES (?, ?)", sorted({(label, image[0]) for label in labels}))


def _sure(worth: NDArray[np.float32] | None) -> int:
    """Return how many bits say how sure each bit is, by what their levels are worth."""
    return 0 if worth is None else int(worth.shape[1]).bit_length() - 1


def _encoded(path: str) -> bytes:
    """Return a path as bytes; empty for a text that no file system path decodes to, which no image has."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return b""
