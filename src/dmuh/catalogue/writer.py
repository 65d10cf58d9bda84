"""Writer: additions to and deletions from a catalogue, which survive a crash once they were acknowledged.

The file of an added image is on the disk before its row is, and the file of a deleted one goes after its row: a crash
in between leaves a file without a row, which the next start sets aside, and never a row without its file.

A deletion can be undone for ten minutes: as long its row is kept in memory, and its file where it is.
"""

import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from dmuh.catalogue.catalogue import Catalogue
from dmuh.catalogue.row_codes import codes_of
from dmuh.catalogue.rows import Entry, Row
from dmuh.codes import Codes
from dmuh.errors import CatalogueError, RequestError
from dmuh.files import no_room, written_whole

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\.(jpg|png|gif|webp|avif|heic)")
_UNDO_SECONDS, _UNDO_IMAGES = 600.0, 10_000  # how long a deletion can be undone, and how many at most


def new_file_name(suffix: str) -> str:
    """Return a random name for the file of an added image."""
    return f"{uuid4().hex}{suffix}"


def is_added_name(name: str) -> bool:
    """Return whether `new_file_name` gives such names; files of other names are never moved or removed."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Addition:
    """An image to be added: its file's content, the suffix of its type such as ".png", and its code."""

    content: bytes | bytearray
    suffix: str
    code: Codes
    labels: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Deletion:
    """An image to be removed, by its id."""

    id: int


@dataclass(frozen=True)
class Restoration:
    """An image to be brought back that was removed a short time ago, by its id."""

    id: int


Change = Addition | Deletion | Restoration
Update = Callable[[Sequence[Codes], Sequence[Row], set[str]], None]


class Writer:
    """Writes changes, several in one transaction; `update` is then told of what is new and what is gone."""

    def __init__(self, catalogue: Catalogue, folder: Path, update: Update) -> None:
        self._catalogue = catalogue
        self._folder = folder
        self._update = update
        self._deleted: OrderedDict[int, tuple[float, Row]] = OrderedDict()  # with the time, the earliest first

    def close(self) -> None:
        """End the time in which deletions can be undone."""
        self._expire(0)

    def write(self, changes: Sequence[Change]) -> list[int | Exception]:
        """Make changes, all or none; return the id of each image, or why it cannot be changed."""
        results: list[int | Exception] = []
        files: list[Path] = []
        new: list[Codes] = []
        gone: list[Row] = []
        back: list[Row] = []
        try:
            with self._catalogue.transaction():
                for change in changes:
                    if isinstance(change, Addition):
                        files.append(self._folder / new_file_name(change.suffix))
                        new.append(self._add(change, files[-1]))
                        results.append(int(new[-1].ids[0]))
                    elif isinstance(change, Restoration):
                        results.append(self._restore(change, back))
                    else:
                        results.append(self._delete(change, gone))
        except BaseException:
            for file in files:
                file.unlink(missing_ok=True)
            raise
        labels = {label for change in changes if isinstance(change, Addition) for label in change.labels}
        labels |= {label for row in back for label in json.loads(row.labels)}
        new += [self._codes(row) for row in back]
        self._update(new, gone, labels)
        for row in back:
            del self._deleted[row.id]
        self._deleted.update((row.id, (time.monotonic(), row)) for row in gone)
        self._expire(_UNDO_IMAGES)
        return results

    def _add(self, addition: Addition, file: Path) -> Codes:
        try:
            with written_whole(file) as temporary:
                temporary.write_bytes(addition.content)
        except OSError as error:
            log.error("%s cannot be written: %s", file, error.strerror)
            if no_room(error):
                raise RequestError(507, f"there is no room left for images: {error.strerror}") from error
            raise RequestError(500, f"the image cannot be written: {error.strerror}") from error
        entry = Entry(file.name, addition.labels, addition.metadata, added=True)
        ids = self._catalogue.add([entry], addition.code)
        return addition.code.stored().with_ids(ids)

    def _delete(self, deletion: Deletion, gone: list[Row]) -> int | Exception:
        try:
            self._catalogue.row(deletion.id)
        except CatalogueError as error:  # its row is damaged: what others asked for goes on
            return error
        row = self._catalogue.remove(deletion.id)
        if row is None:
            return RequestError(404, f"there is no image {deletion.id}")
        gone.append(row)
        return row.id

    def _restore(self, restoration: Restoration, back: list[Row]) -> int | Exception:
        _, row = self._deleted.get(restoration.id, (0, None))
        if row is None or row in back:
            return RequestError(404, f"image {restoration.id} was not deleted in the last ten minutes")
        self._catalogue.restore(row)
        back.append(row)
        return row.id

    def _codes(self, row: Row) -> Codes:
        return codes_of([row], self._catalogue.n_bits, self._catalogue.worth).with_ids([row.id])

    def _expire(self, most: int) -> None:
        """Forget deletions that are too long ago, and all but the last `most`, with the files that were added."""
        late = time.monotonic() - _UNDO_SECONDS
        expired = []
        while self._deleted and (len(self._deleted) > most or next(iter(self._deleted.values()))[0] < late):
            expired.append(self._deleted.popitem(last=False)[1][1])
        self._remove_files(expired)

    def _remove_files(self, gone: Sequence[Row]) -> None:
        """Remove the files of images that were added and are gone; a name that this service never gave stays."""
        for name in [os.fsdecode(row.path) for row in gone if row.added]:
            if not is_added_name(name):
                log.warning("%r is left in %s: it is not a name that this service gives", name, self._folder)
                continue
            try:
                (self._folder / name).unlink(missing_ok=True)
            except OSError as error:  # the image is gone all the same, and the next start sets the file aside
                log.warning("%s cannot be removed: %s", self._folder / name, error.strerror)
