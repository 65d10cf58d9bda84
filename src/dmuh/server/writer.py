"""Writer: changes of a catalogue that survive whatever comes after they were acknowledged.

The file of an added image is on the disk before its row is, and the file of a deleted one goes after its row: a crash
in between leaves a file without a row, which the next start clears away, and never a row without its file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import numpy as np

from dmuh.codes import Codes
from dmuh.errors import RequestError
from dmuh.files import written_whole
from dmuh.server.catalogue import Catalogue, Entry, Row
from dmuh.server.uploads import Upload


@dataclass(frozen=True)
class Addition:
    """An uploaded image that is to be kept."""

    upload: Upload
    labels: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Deletion:
    """An image that is to go."""

    id: int


Change = Addition | Deletion
Update = Callable[[Sequence[Codes], Sequence[Row], set[str]], None]


class Writer:
    """Writes changes, several in one transaction; `update` is then told of what is new and what is gone."""

    def __init__(self, catalogue: Catalogue, folder: Path, update: Update) -> None:
        self._catalogue = catalogue
        self._folder = folder
        self._update = update

    def write(self, changes: Sequence[Change]) -> list[int | Exception]:
        """Make changes, all or none; return the id of each image, or why it cannot be changed."""
        results: list[int | Exception] = []
        files: list[Path] = []
        new: list[Codes] = []
        gone: list[Row] = []
        try:
            with self._catalogue.changing():
                for change in changes:
                    if isinstance(change, Addition):
                        files.append(self._folder / f"{uuid4().hex}{change.upload.kind.suffix}")
                        new.append(self._add(change, files[-1]))
                        results.append(int(new[-1].ids[0]))
                    elif row := self._catalogue.remove(change.id):
                        gone.append(row)
                        results.append(row.id)
                    else:
                        results.append(RequestError(404, f"there is no image {change.id}"))
        except BaseException:
            for file in files:
                file.unlink(missing_ok=True)
            raise
        labels = {label for change in changes if isinstance(change, Addition) for label in change.labels}
        self._update(new, gone, labels)
        for row in gone:
            if row.added:
                (self._folder / row.path.decode()).unlink(missing_ok=True)
        return results

    def _add(self, addition: Addition, file: Path) -> Codes:
        code = addition.upload.code
        with written_whole(file) as temporary:
            temporary.write_bytes(addition.upload.content)
        entry = Entry(file.name, addition.labels, addition.metadata, added=True)
        return Codes(code.bits, code.n_bits, ids=np.array(self._catalogue.add([entry], code)))
