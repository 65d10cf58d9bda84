"""CatalogueReader: all that can be asked of a catalogue. Every row has a checksum, which is checked when it is read."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.changes import changes_since
from dmuh.catalogue.database import Database
from dmuh.catalogue.decisions import Decision, read_decisions
from dmuh.catalogue.integrity import is_intact
from dmuh.catalogue.rows import ImageRow, Row, sure_bits
from dmuh.catalogue.schema import ROWS, code_checksum, image_checksum, note_checksum, path_checksum
from dmuh.catalogue.versions import WITHOUT_LEVELS
from dmuh.codes import Codes
from dmuh.errors import FormatError

_MANY = 65_536  # rows that are fetched together
_ROW = f"SELECT {ROWS.image}, {ROWS.code} FROM images JOIN codes USING (id)"
_IMAGE = 8  # columns of an image in it, with the checksum
_ADDED = "SELECT path FROM images INDEXED BY by_added WHERE added"  # else every path is looked at
MOST_IDENTICAL = 1001  # more than a search asks for
ORDERS = {"uncertainty": "uncertainty DESC, images.id", "id": "images.id"}


class CatalogueReader(Database):
    """The images of an index or a service, as they can be read.

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
        return sure_bits(self.worth)

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
        shape = (len(found), sure_bits(worth), width)
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


def _encoded(path: str) -> bytes:
    """Return a path as bytes; empty for a text that no file system path decodes to, which no image has."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return b""
