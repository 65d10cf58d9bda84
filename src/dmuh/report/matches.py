"""Matches as pictures in a notebook: each query, and the images that are nearest to it."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets import Dataset
from dmuh.errors import InputError
from dmuh.images import ImageLike
from dmuh.index import Matches
from dmuh.index.soft import distance_text
from dmuh.report.thumbnails import data_uri

Pictures = Dataset | Sequence[ImageLike] | Mapping[int, ImageLike] | NDArray[np.uint8]

_CELL = "display:inline-block;margin:4px;vertical-align:top;text-align:center;font-size:11px;overflow-wrap:anywhere"


@dataclass(frozen=True, eq=False)
class MatchesView:
    """Matches with their images, which a notebook shows by itself."""

    matches: Matches
    images: Pictures
    queries: Pictures | None
    most: int
    side: int

    def __repr__(self) -> str:
        return f"{self.matches!r}: a notebook shows their images"

    def _repr_html_(self) -> str:
        """Return the pictures as HTML that needs no other file."""
        rows = zip(self.matches.ids[: self.most].tolist(), self.matches.distances[: self.most].tolist(), strict=True)
        shown = [self._row(query, ids, distances) for query, (ids, distances) in enumerate(rows)]
        left = len(self.matches) - len(shown)
        return "".join(shown) + (f"<p>and {left:,} more queries</p>" if left > 0 else "")

    def _row(self, query: int, ids: list[int], distances: list[float]) -> str:
        cells = [] if self.queries is None else [self._cell(self.queries, query, f"query {query}")]
        cells += [
            self._cell(self.images, id_, f"{id_}, distance {distance_text(distance)}")
            for id_, distance in zip(ids, distances, strict=True)
        ]
        return f'<div style="white-space:nowrap;overflow-x:auto">{"".join(cells)}</div>'

    def _cell(self, images: Pictures, key: int, caption: str) -> str:
        image = _image(images, key)
        name = f"<br>{html.escape(_text(Path(image).name))}" if isinstance(image, str | Path) else ""
        picture = "" if image is None else f'<img src="{data_uri(image, self.side)}" alt="{html.escape(caption)}"><br>'
        style = f"{_CELL};width:{self.side}px;white-space:normal"
        return f'<div style="{style}">{picture}{html.escape(caption)}{name}</div>'


def show_matches(
    matches: Matches, images: Pictures, queries: Pictures | None = None, *, most: int = 10, side: int = 96
) -> MatchesView:
    """Return matches with their images, as rows of pictures that a notebook shows.

    images   the images that were searched, by id: a data set, a list or array where ids are positions, or a dict
    queries  the query images by position, to be shown first in each row
    most     queries that are shown
    side     width and height of a picture in pixels

    >>> hasher = dmuh.Hasher.load(run)
    >>> photo_set = dmuh.load_dataset("images", photos)
    >>> matches = dmuh.HammingIndex().add(hasher.encode(photo_set)).search(hasher.encode(photo_set.images[:2]), k=3)
    >>> dmuh.show_matches(matches, photo_set, photo_set.images[:2])
    Matches(2 queries × 3 nearest): a notebook shows their images
    """
    if most < 1 or side < 1:
        raise InputError(f"most and side must be at least 1, got {most} and {side}")
    return MatchesView(matches, images, queries, most, side)


def _image(images: Pictures, key: int) -> Any:
    """Return the image of an id or position, or None where there is none."""
    if isinstance(images, Mapping):
        return images.get(key)
    row = images.images if isinstance(images, Dataset) else images
    return row[key] if 0 <= key < len(row) else None


def _text(name: str) -> str:
    """Return a file's name as text that can be shown, also where it is no Unicode."""
    return name.encode("utf-8", "replace").decode()
