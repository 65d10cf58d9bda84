"""TarSource: images in tar files as WebDataset has them."""

import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from dmuh.errors import DataError
from dmuh.images import SUFFIXES
from dmuh.shards.sources.base import BATCH, ImageBatch

_TAR_BITS = 32  # lower bits of an id, which count the images of one tar file; the upper ones number the file


@dataclass(frozen=True)
class TarSource:
    """Images in tar files as WebDataset lays them out: key.jpg, and key.cls with its label if it has one.

    A shard is some of the files, so that no process opens those of another. An image's id is its file's
    number times 2³² plus its place among the images there.
    """

    files: Sequence[Path]

    def digest(self) -> str:
        """Return a digest of the files' names and sizes."""
        about = [(file.name, file.stat().st_size) for file in self.files]
        return hashlib.sha256(repr(about).encode()).hexdigest()

    def batches(self, shard: int, shards: int) -> Iterator[ImageBatch]:
        """Yield the images of neighbouring files."""
        n = len(self.files)
        for number in range(n * shard // shards, n * (shard + 1) // shards):
            found = 0
            for names, contents, labels in self._read(self.files[number]):
                ids = (number << _TAR_BITS) + np.arange(found, found + len(names))
                found += len(names)
                yield ImageBatch(ids, names, contents, labels)

    def _read(self, file: Path) -> Iterator[tuple[list[str], list[bytes], list[list[str]]]]:
        """Yield names, contents and labels of the images of a file, BATCH at a time at most."""
        names: list[str] = []
        contents: list[bytes] = []
        labels: list[list[str]] = []
        for key, parts in _samples(file):
            image = next((suffix for suffix in parts if f".{suffix.rpartition('.')[2]}" in SUFFIXES), None)
            if image is None:
                continue
            if len(names) == BATCH:
                yield names, contents, labels
                names, contents, labels = [], [], []
            names.append(f"{file.absolute()}/{key}.{image}")
            contents.append(parts[image])
            labels.append([parts["cls"].decode("utf-8", "replace").strip()] if "cls" in parts else [])
        if names:
            yield names, contents, labels


def _samples(file: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the samples of a tar file, neighbours of one name up to the first dot: the key, and the parts by suffix."""
    key: str | None = None
    parts: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r|*", errors="replace") as archive:  # names need not be UTF-8
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                path = PurePosixPath(member.name)
                stem, _, suffix = path.name.partition(".")
                if content is None or not stem:
                    continue
                name = str(path.with_name(stem))
                if name != key and key is not None:
                    yield key, parts
                    parts = {}
                key = name
                parts[suffix.lower()] = content.read()
    except Exception as error:  # a broken archive raises nearly anything
        raise DataError(f"{file} is cut short or not a tar file: {error}") from error
    if key is not None:
        yield key, parts
