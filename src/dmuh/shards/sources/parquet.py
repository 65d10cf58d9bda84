"""ListSource: images that Parquet files list by path, or hold."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets.csv_list import LABEL_COLUMNS, PATH_COLUMNS
from dmuh.errors import DataError, MissingExtraError
from dmuh.shards.sources.base import BATCH, ImageBatch


@dataclass(frozen=True)
class ListSource:
    """Images listed in Parquet files: a column of paths, relative to the list, or of contents; labels if it has some.

    An image's id is its row, counted over all files. A process reads the rows of its shard alone.
    """

    files: Sequence[Path]

    def digest(self) -> str:
        """Return a digest of the files' names, sizes and rows."""
        about = [(file.name, file.stat().st_size, n) for file, n in zip(self.files, self._counts(), strict=True)]
        return hashlib.sha256(repr(about).encode()).hexdigest()

    def batches(self, shard: int, shards: int) -> Iterator[ImageBatch]:
        """Yield neighbouring rows."""
        counts = self._counts()
        total, first = sum(counts), 0
        begin, end = total * shard // shards, total * (shard + 1) // shards
        for file, n in zip(self.files, counts, strict=True):
            if first < end and first + n > begin:
                yield from self._rows(file, first, begin, end)
            first += n

    def _rows(self, file: Path, first: int, begin: int, end: int) -> Iterator[ImageBatch]:
        """Yield the rows begin … end of those of a file, whose first row is number `first`."""
        opened = _open_list(file)
        column, label = _columns(file, opened.schema_arrow.names)
        for group in range(opened.metadata.num_row_groups):
            n = opened.metadata.row_group(group).num_rows
            if first < end and first + n > begin:
                wanted = [column, *([label] if label else [])]
                with _reading(file):
                    table = opened.read_row_group(group, wanted)
                table = table.slice(max(begin - first, 0), end - max(begin, first))
                for at in range(0, len(table), BATCH):
                    with _reading(file):
                        rows = table.slice(at, BATCH).to_pydict()
                    ids = max(begin, first) + np.arange(at, at + len(rows[column]))
                    yield _listed(file, ids, rows[column], rows[label] if label else None)
            first += n

    def _counts(self) -> list[int]:
        return [_open_list(file).metadata.num_rows for file in self.files]


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("Parquet", "scale") from error
    return pa, parquet


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn errors of pyarrow about a damaged file into a sentence."""
    pa, _ = arrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:  # a ValueError for texts that are not UTF-8
        raise DataError(f"{file} is cut short or not a Parquet file: {error}") from error


def _open_list(file: Path) -> Any:
    _, parquet = arrow()
    with _reading(file):
        return parquet.ParquetFile(file)


def _columns(file: Path, names: Sequence[str]) -> tuple[str, str | None]:
    """Return the columns of a list that hold the images and the labels, if any."""
    image = next((name for name in names if name.lower() in PATH_COLUMNS), None)
    if image is None:
        raise DataError(f"{file} has no column {', '.join(PATH_COLUMNS)}, found {', '.join(names)}")
    return image, next((name for name in names if name.lower() in LABEL_COLUMNS), None)


def _listed(file: Path, ids: NDArray[np.int64], images: list[Any], labels: list[Any] | None) -> ImageBatch:
    """Return rows of a list: paths, or contents of files; a label is a text or a number, or a list of them."""
    places = [f"{file.absolute()}, row {id_}" for id_ in ids.tolist()]
    for place, image in zip(places, images, strict=True):
        if not isinstance(image, str | bytes) or image == "":
            kind = "an empty text" if image == "" else "nothing" if image is None else type(image).__name__
            raise DataError(f"{place} has {kind} for its image, expected a path or the content of a file")
    found = [image if isinstance(image, bytes) else file.absolute().parent / image for image in images]
    names = [place if isinstance(image, bytes) else str(image) for place, image in zip(places, found, strict=True)]
    given = [None] * len(images) if labels is None else labels
    return ImageBatch(ids, names, found, [_texts(place, label) for place, label in zip(places, given, strict=True)])


def _texts(place: str, label: Any) -> list[str]:
    """Return a row's labels as texts; null is no label."""
    texts = []
    for value in label if isinstance(label, list) else [label]:
        if isinstance(value, dict | list | tuple):
            raise DataError(
                f"{place} has a {type(value).__name__} for a label, expected a text or a number, or a list of them"
            )
        if value is not None:
            texts.append(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    return texts
