"""Duplicates: groups of images that are the same or nearly so, and which of each is the best to keep."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmuh.catalogue import Catalogue, Row
from dmuh.duplicates import Group, find_groups
from dmuh.errors import DmuhError
from dmuh.features import FolderFeatures
from dmuh.server.finding import Finding

log = logging.getLogger(__name__)

_LARGEST, _FIRST, _LEFT = "the largest file", "first of equal files", "the best of those left"
_IDENTICAL, _FEATURES = "identical", "features"


@dataclass(frozen=True)
class Known:
    """A group by the ids of its images, with the best of them, why it is, and what the others are to it."""

    kinds: dict[int, str]
    best: int
    reason: str


class Duplicates:
    """Groups of a catalogue: near duplicates too where `features` gives those of its folder, else identical images.

    `folders` are those of the collection's files and of the added ones.
    """

    def __init__(
        self, catalogue: Catalogue, folders: tuple[Path, Path], features: Callable[[], FolderFeatures] | None
    ) -> None:
        self._catalogue = catalogue
        self._folders = folders
        self._features = features
        self._finding = Finding("duplicates", catalogue, self._find)

    def close(self) -> None:
        """End the thread."""
        self._finding.close()

    def page(self, n: int, offset: int, as_json: Callable[[Row], str]) -> str:
        """Return a part of the groups as JSON; of a group at least two images must still be there."""
        found, working = self._finding.found()
        there = set(self._catalogue.ids().tolist())
        left = [known for known in found if len(there & known.kinds.keys()) > 1]
        listed = [self._group_json(known, as_json) for known in left[offset : offset + n]]
        by = _IDENTICAL if self._features is None else _FEATURES
        return (
            f'{{"working":{json.dumps(working)},"by":"{by}","total":{len(left)},'
            f'"groups":[{",".join(filter(None, listed))}]}}'
        )

    def _group_json(self, known: Known, as_json: Callable[[Row], str]) -> str:
        """Return a group as JSON, the best first; nothing if images were deleted a moment ago."""
        rows = {row.id: row for row in self._catalogue.rows(known.kinds)}
        ids = [id_ for id_ in known.kinds if id_ in rows]
        if len(ids) < 2:
            return ""
        best, reason = (known.best, known.reason) if known.best in rows else (ids[0], _LEFT)
        images = ",".join(as_json(rows[id_]) for id_ in ids)
        kinds = json.dumps([known.kinds[id_] for id_ in ids])
        return f'{{"images":[{images}],"kinds":{kinds},"best":{best},"reason":{json.dumps(reason)}}}'

    def _find(self) -> list[Known]:
        if self._features is not None:
            try:
                ids = {path: id_ for path, (id_, _) in self._catalogue.files().items()}
                groups = [_known(group, ids) for group in find_groups(self._features())]
                return [known for known in groups if len(known.kinds) > 1]
            except DmuhError as error:  # such as files that are gone by now
                log.warning("only identical images are found: %s", error)
        return [self._best(ids) for ids in self._catalogue.identical_groups()]

    def _best(self, ids: list[int]) -> Known:
        """Return identical images, the largest file first, and of files of one size the first."""
        rows = sorted(self._catalogue.rows(ids), key=lambda row: row.id)
        sizes = {row.id: _bytes(self._folders[row.added] / os.fsdecode(row.path)) for row in rows}
        largest = [id_ for id_, size in sizes.items() if size == max(sizes.values())]
        order = [*largest[:1], *(id_ for id_ in sizes if id_ not in largest[:1])]
        reason = _LARGEST if len(largest) == 1 else _FIRST
        return Known({id_: "best" if id_ in largest[:1] else "identical" for id_ in order}, order[0], reason)


def _known(group: Group, ids: dict[str, int]) -> Known:
    """Return a group of files by the ids of those that the catalogue has."""
    kinds: dict[int, str] = {ids[str(each.path)]: each.kind for each in group.members if str(each.path) in ids}
    best = ids.get(str(group.best.path))
    return Known(kinds, next(iter(kinds), 0), _LEFT) if best is None else Known(kinds, best, group.reason)


def _bytes(file: Path) -> int:
    try:
        return file.lstat().st_size
    except (OSError, ValueError):  # it is gone
        return -1
