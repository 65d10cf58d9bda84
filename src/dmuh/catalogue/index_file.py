"""The index file of a catalogue: its codes as a search needs them, memory-mapped.

The catalogue decides, and the file is made of it. It says which catalogue it is of (the note `epoch`) and how many
changes it has taken in (`changed`); those since are in the table `changes`, and are taken in when it is opened. It is
written whole, and only then are the changes that it has forgotten: whatever is killed in between, the file is of some
moment, and all changes since are known. A file that is missing, damaged or of another catalogue is made again.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmuh.catalogue.catalogue import Catalogue
from dmuh.errors import FormatError
from dmuh.files import saved_kind, saved_metadata
from dmuh.index import HammingIndex

log = logging.getLogger(__name__)

_KIND = "dmuh index"
_FEW, _SHARE = 10_000, 16  # changes up to which a file is left as it is: so many, or this part of the codes


@dataclass(frozen=True)
class IndexOf:
    """An index of all codes of a catalogue at one moment: its state then, and how many changes its file lacks."""

    index: HammingIndex
    state: str
    behind: int


def open_index(catalogue: Catalogue, file: Path) -> IndexOf:
    """Return the index of a catalogue as it is now, from its file and what changed since, or from its codes."""
    for _ in range(2):  # another process may write the file and forget changes between the two readings
        found = _caught_up(catalogue, file)
        if found is not None:
            return found
    with catalogue.snapshot():
        codes, state = catalogue.codes(), catalogue.state
    return IndexOf(HammingIndex().add(codes), state, len(codes))


def kept_index(catalogue: Catalogue, file: Path) -> HammingIndex:
    """Return the index of a catalogue as it is now; its file is written again where it lacks many changes."""
    found = open_index(catalogue, file)
    if _are_many(found.behind, len(found.index)) and (not file.exists() or is_index_file(file)):
        write_index(catalogue, file, found)
    return found.index


def lacks_many(catalogue: Catalogue, file: Path) -> bool:
    """Return whether an index file lacks so many changes that it should be written again."""
    try:
        of = str(saved_metadata(file).get("of"))
    except FormatError:
        return False
    n = int(of.partition(" ")[2]) if catalogue.is_state(of) else -len(catalogue)
    return _are_many(int(catalogue.about("changed") or 0) - n, len(catalogue))


def is_index_file(file: Path) -> bool:
    """Return whether a file is an index as dmuh writes it, of whatever it is."""
    return saved_kind(file) == _KIND


def _are_many(changes: int, n_codes: int) -> bool:
    return changes > max(_FEW, n_codes // _SHARE)


def write_index(catalogue: Catalogue, file: Path, found: IndexOf) -> None:
    """Write the file of an index; afterwards the changes that it has are forgotten."""
    found.index.save(file, of=found.state)
    catalogue.forget_changes(found.state)


def _caught_up(catalogue: Catalogue, file: Path) -> IndexOf | None:
    """Return the index of the file with what changed since; None where it has to be made of the codes."""
    try:
        of = str(saved_metadata(file).get("of")) if file.is_file() else ""
        index = HammingIndex.load(file, of=of) if catalogue.is_state(of) else None
    except FormatError as error:
        log.warning("%s: searched is what the catalogue has", error)
        return None
    if index is None:
        return None
    with catalogue.snapshot():
        ids, state = catalogue.changed_since(of), catalogue.state
        if ids is None:
            return None
        new = catalogue.some_codes(ids)
    if ids:
        changed, known = np.array(ids, np.int64), index.ids  # both ascend
        begin, end = (np.searchsorted(known, changed, side) for side in ("left", "right"))
        index.remove(changed[begin < end])
        if len(new):
            index.add(new)
    return IndexOf(index, state, len(ids))
