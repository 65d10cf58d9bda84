"""What is encoded in shards: data sets, Parquet lists and tar files, each cut into parts that any process can find."""

import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets import Dataset
from dmuh.datasets.csv_list import LABEL_COLUMNS, PATH_COLUMNS
from dmuh.errors import DataError, MissingExtraError
from dmuh.images import SUFFIXES, Images

_PIECE = 4096  # images that are encoded together
_TAR_BITS = 32  # of an id that count the images of one tar file; those above number the file


@dataclass(frozen=True)
class Piece:
    """Some images, in the order of their ids: names and labels of each."""

    ids: NDArray[np.int64]
    names: list[str]
    images: Images
    labels: list[list[str]]


class Source(Protocol):
    """Images that are cut into shards."""

    def digest(self) -> str:
        """Return what changes when the source does."""

    def pieces(self, shard: int, shards: int) -> Iterator[Piece]:
        """Yield the images of one shard, counted from 0; ids rise from shard to shard."""


@dataclass(frozen=True)
class DatasetSource:
    """The images of a data set; their ids are their positions there, their shards are of equal size."""

    data: Dataset

    def digest(self) -> str:
        """Return a digest of names and labels, and of the files, which changes when images are replaced."""
        files = self.data.image_files(np.arange(len(self.data)))
        return hashlib.sha256(f"{self.data.fingerprint()} {files.sizes} {files.sample}".encode()).hexdigest()

    def pieces(self, shard: int, shards: int) -> Iterator[Piece]:
        """Yield neighbouring images."""
        n = len(self.data)
        begin, end = n * shard // shards, n * (shard + 1) // shards
        for first in range(begin, end, _PIECE):
            ids = np.arange(first, min(first + _PIECE, end))
            names = [self.data.whole_path(position) for position in ids.tolist()]
            labels = [self.data.label_names(position) for position in ids.tolist()]
            yield Piece(ids, names, self.data.take(ids), labels)


@dataclass(frozen=True)
class TarSource:
    """Images in tar files as WebDataset lays them out: key.jpg, and key.cls with its label if it has one.

    A shard is some of the files, so none is opened to find out what another process has. An image's id is its file's
    number times 2³² plus its place among the images there.
    """

    files: Sequence[Path]

    def digest(self) -> str:
        """Return a digest of the files' names and sizes."""
        about = [(file.name, file.stat().st_size) for file in self.files]
        return hashlib.sha256(repr(about).encode()).hexdigest()

    def pieces(self, shard: int, shards: int) -> Iterator[Piece]:
        """Yield the images of neighbouring files."""
        n = len(self.files)
        for number in range(n * shard // shards, n * (shard + 1) // shards):
            found = 0
            for names, contents, labels in self._read(self.files[number]):
                ids = (number << _TAR_BITS) + np.arange(found, found + len(names))
                found += len(names)
                yield Piece(ids, names, contents, labels)

    def _read(self, file: Path) -> Iterator[tuple[list[str], list[bytes], list[list[str]]]]:
        """Yield names, contents and labels of up to so many images of a file."""
        names: list[str] = []
        contents: list[bytes] = []
        labels: list[list[str]] = []
        for key, parts in _samples(file):
            image = next((suffix for suffix in parts if f".{suffix.rpartition('.')[2]}" in SUFFIXES), None)
            if image is None:
                continue
            if len(names) == _PIECE:
                yield names, contents, labels
                names, contents, labels = [], [], []
            names.append(f"{file.absolute()}/{key}.{image}")
            contents.append(parts[image])
            labels.append([parts["cls"].decode("utf-8", "replace").strip()] if "cls" in parts else [])
        if names:
            yield names, contents, labels


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

    def pieces(self, shard: int, shards: int) -> Iterator[Piece]:
        """Yield neighbouring rows."""
        counts = self._counts()
        total, first = sum(counts), 0
        begin, end = total * shard // shards, total * (shard + 1) // shards
        for file, n in zip(self.files, counts, strict=True):
            if first < end and first + n > begin:
                yield from self._rows(file, first, begin, end)
            first += n

    def _rows(self, file: Path, first: int, begin: int, end: int) -> Iterator[Piece]:
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
                for at in range(0, len(table), _PIECE):
                    with _reading(file):
                        rows = table.slice(at, _PIECE).to_pydict()
                    ids = max(begin, first) + np.arange(at, at + len(rows[column]))
                    yield _listed(file, ids, rows[column], rows[label] if label else None)
            first += n

    def _counts(self) -> list[int]:
        return [_open_list(file).metadata.num_rows for file in self.files]


def open_source(paths: Sequence[Path]) -> "Source | None":
    """Return the source of tar files, or of Parquet lists, if that is what the paths are."""
    for suffix, kind in ((".tar", TarSource), (".parquet", ListSource)):
        of_kind = [path for path in paths if path.suffix.lower() == suffix]
        if of_kind and len(of_kind) < len(paths):
            raise DataError(f"{suffix} files and others cannot be encoded together: {of_kind[0]} is one of the former")
        if of_kind:
            gone = next((path for path in paths if not path.is_file()), None)
            if gone is not None:
                raise DataError(f"{gone} does not exist")
            return kind(tuple(paths))
    return None


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
    """Turn what pyarrow raises for a file that is no list into a sentence."""
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


def _listed(file: Path, ids: NDArray[np.int64], images: list[Any], labels: list[Any] | None) -> Piece:
    """Return rows of a list: paths, or contents of files; a label is a text or a number, or a list of them."""
    places = [f"{file.absolute()}, row {id_}" for id_ in ids.tolist()]
    for place, image in zip(places, images, strict=True):
        if not isinstance(image, str | bytes) or image == "":
            kind = "an empty text" if image == "" else "nothing" if image is None else type(image).__name__
            raise DataError(f"{place} has {kind} for its image, expected a path or the content of a file")
    found = [image if isinstance(image, bytes) else file.absolute().parent / image for image in images]
    names = [place if isinstance(image, bytes) else str(image) for place, image in zip(places, found, strict=True)]
    own = [None] * len(images) if labels is None else labels
    return Piece(ids, names, found, [_texts(place, label) for place, label in zip(places, own, strict=True)])


def _texts(place: str, label: Any) -> list[str]:
    """Return a row's labels as texts; what is null is none."""
    texts = []
    for value in label if isinstance(label, list) else [label]:
        if isinstance(value, dict | list | tuple):
            raise DataError(
                f"{place} has a {type(value).__name__} for a label, expected a text or a number, or a list of them"
            )
        if value is not None:
            texts.append(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    return texts


def _samples(file: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the samples of a tar file, neighbours of one name up to the first dot: the key, and the parts by suffix."""
    key: str | None = None
    parts: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r|*", errors="replace") as archive:  # names that are not UTF-8 can be written, too
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                path = PurePosixPath(member.name)
                stem, _, suffix = path.name.partition(".")
                if content is None or not stem:
                    continue
                own = str(path.with_name(stem))
                if own != key and key is not None:
                    yield key, parts
                    parts = {}
                key = own
                parts[suffix.lower()] = content.read()
    except Exception as error:  # a broken archive raises nearly anything
        raise DataError(f"{file} is cut short or not a tar file: {error}") from error
    if key is not None:
        yield key, parts
