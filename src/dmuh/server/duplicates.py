"""Groups of images that are the same, and which of each is the best to keep."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from dmuh.catalogue import Catalogue, Row

_LARGEST, _FIRST = "the largest file", "first of equal files"


def duplicates_page(
    catalogue: Catalogue, folders: tuple[Path, Path], n: int, offset: int, as_json: Callable[[Row], str]
) -> str:
    """Return a part of the groups as JSON; `folders` are those of the collection's files and of the added ones."""
    groups = catalogue.identical_groups()
    listed = []
    for ids in groups[offset : offset + n]:
        rows = sorted(catalogue.rows(ids), key=lambda row: row.id)
        if len(rows) > 1:
            best, reason = _best(rows, folders)
            images = ",".join(as_json(row) for row in rows)
            listed.append(f'{{"images":[{images}],"best":{best},"reason":{json.dumps(reason)}}}')
    return f'{{"total":{len(groups)},"groups":[{",".join(listed)}]}}'


def _best(rows: list[Row], folders: tuple[Path, Path]) -> tuple[int, str]:
    """Return the id of the image to keep, and why: the largest file, and of those of one size the first."""
    sizes = {row.id: _bytes(folders[row.added] / os.fsdecode(row.path)) for row in rows}
    largest = max(sizes.values())
    best = [id_ for id_, size in sizes.items() if size == largest]
    return best[0], _LARGEST if len(best) == 1 else _FIRST


def _bytes(file: Path) -> int:
    try:
        return file.lstat().st_size
    except (OSError, ValueError):  # it is gone
        return -1
