"""Shards: a folder of codes that many processes on many machines make, each of which may be killed and started again.

It holds

    shards.json                      the model, what its levels of sureness are worth, the sources and how many shards
                                     they are cut into
    shard-00003-of-00064.parquet     of each image id, path, labels, code (packed bits), levels (packed planes),
                                     contents (a digest) and uncertainty (of the image as a whole)
    shard-00003-of-00064.json        the checksum of that file, what it belongs to, and the ids that it spans

Which images a shard has depends on the sources and the number of shards alone. A shard is written whole or not at all,
and counts once its checksum is written, so to go on after a crash is to run the same command: what is there is left
alone. A code never depends on the images encoded beside it, so the shards together are what one process would have
made. A shard that was altered, or is of other images or another model, is refused.

Shards of earlier versions have no levels and no contents. Their uncertainties, one per bit, are no probabilities: they
are left out.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.collection.paths import common_root
from dmuh.errors import DataError, FormatError, RunError
from dmuh.files import clear_torn
from dmuh.files.documents import digest_of, file_digest, read_document, write_document
from dmuh.index import HammingIndex, MilvusIndex
from dmuh.shards.sources.parquet import arrow

_KIND, _SHARD_KIND = "dmuh shards", "dmuh shard"
_TOGETHER = 65_536  # rows that are in memory while shards are merged


@dataclass(frozen=True)
class Manifest:
    """What all shards of a folder have in common."""

    model: str
    model_digest: str
    n_bits: int
    source: str  # digest of what is encoded
    shards: int
    worth: list[list[float]] | None = None  # of the levels of each bit; None: codes have no levels

    def digest(self) -> str:
        """Return what each shard says it belongs to; where the model lies does not count."""
        same = {key: value for key, value in asdict(self).items() if key != "model"}
        if self.worth is None:  # as earlier versions, which knew no levels, computed it
            del same["worth"]
        return digest_of(same)

    @property
    def sure(self) -> int:
        """How many bits say how sure each bit is: 0, 1 or 2."""
        return 0 if self.worth is None else len(self.worth[0]).bit_length() - 1


@dataclass(frozen=True)
class ShardInfo:
    """What stands beside a shard: the digest of its manifest, which shard it is, its checksum and its range of ids."""

    of: str
    shard: str
    sha256: str
    first: int
    last: int


@dataclass(frozen=True)
class Shards:
    """A folder of shards."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether the folder holds shards."""
        return self._manifest_file.is_file()

    @property
    def _manifest_file(self) -> Path:
        return self.path / "shards.json"

    def file(self, shard: int, shards: int) -> Path:
        """Return the file of a shard, counted from 0."""
        return self.path / f"shard-{shard:05}-of-{shards:05}.parquet"

    def manifest(self) -> Manifest:
        """Read what the shards have in common."""
        if not self.exists:
            raise DataError(
                f"{self.path} holds no shards: make them by dmuh encode RUN IMAGES --shards N --out {self.path}"
            )
        try:
            return Manifest(**read_document(self._manifest_file, _KIND))
        except TypeError as error:
            raise FormatError(f"{self._manifest_file} is not a list of shards that this dmuh reads") from error

    def begin(self, manifest: Manifest) -> None:
        """Write what all shards have in common; a folder with shards of something else is refused.

        If several processes begin a folder at once, the first one decides.
        """
        if not self.exists:
            with suppress(FileExistsError):
                write_document(self._manifest_file, _KIND, asdict(manifest), replace=False)
        existing = self.manifest()
        same = {
            "model": "model_digest",
            "list of images": "source",
            "number of shards": "shards",
            "number of sure bits (--sure)": "sure",
        }
        other = [what for what, name in same.items() if getattr(existing, name) != getattr(manifest, name)]
        if other:
            raise RunError(f"{self.path} holds shards of another {' and '.join(other)}: choose another folder")

    def missing(self) -> list[int]:
        """Return which shards are not there yet, counted from 0."""
        n = self.manifest().shards
        return [shard for shard in range(n) if not self.has(shard, n)]

    def has(self, shard: int, shards: int) -> bool:
        """Return whether a shard is there, counted from 0: its file and, written last, its checksum."""
        file = self.file(shard, shards)
        return file.is_file() and file.with_suffix(".json").is_file()

    def contents(self) -> Iterator["ShardContent"]:
        """Yield the content of each shard; all of them must be there."""
        manifest = self.manifest()
        for shard in self._whole(manifest):
            yield _content(_read(self.file(shard, manifest.shards), self._info(shard, manifest)), manifest)

    def _checked_parts(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield all rows of all shards, some at a time, or some columns of them; each file is checked before."""
        manifest = self.manifest()
        for shard in self._whole(manifest):
            yield from _read_parts(self.file(shard, manifest.shards), self._info(shard, manifest), columns)

    def _whole(self, manifest: Manifest) -> range:
        """Return the numbers of all shards, all of which must be there."""
        missing = self.missing()
        if missing:
            raise DataError(
                f"{self.path} misses {len(missing)} of {manifest.shards} shards, the first is {missing[0] + 1}: "
                "run the same dmuh encode again"
            )
        return range(manifest.shards)

    def finish(self, shard: int, manifest: Manifest, first: int, last: int) -> None:
        """Write the checksum of a shard whose file is written, and its range of ids: from then on it counts."""
        file = self.file(shard, manifest.shards)
        info = ShardInfo(manifest.digest(), f"{shard} of {manifest.shards}", file_digest(file), first, last)
        write_document(file.with_suffix(".json"), _SHARD_KIND, asdict(info))

    def _info(self, shard: int, manifest: Manifest) -> ShardInfo:
        """Read the checksum and the range of ids of a shard, if it belongs to this folder."""
        file = self.file(shard, manifest.shards)
        info = ShardInfo(**read_document(file.with_suffix(".json"), _SHARD_KIND))
        if (info.of, info.shard) != (manifest.digest(), f"{shard} of {manifest.shards}"):
            raise FormatError(
                f"{file} is another shard, or one of another model or of other images: remove it and its .json, and "
                "run dmuh encode again"
            )
        return info

    def fill(self, index: HammingIndex | MilvusIndex, progress: Callable[[int], None] = lambda _: None) -> None:
        """Give an index the codes of all shards, one shard in memory at a time; what it has already is left alone.

        So a load that broke off goes on where it was. Milvus gets the labels too.
        """
        for part in self.contents():
            if isinstance(index, MilvusIndex):
                index.add_missing(part.codes, part.labels)
            else:
                index.add(part.codes[~np.isin(part.codes.ids, index.ids)])
            progress(len(part.codes))

    def merge(self) -> Collection:
        """Make a collection of all shards in the same folder and return it; some rows at a time are in memory."""
        manifest = self.manifest()
        root = common_root(path for part in self._checked_parts(["path"]) for path in _paths(part))
        clear_torn(self.path, "shard-")
        parts = chain([_nothing(manifest)], (_content(part, manifest) for part in self._checked_parts()))
        made = Collection(self.path)
        made.write_parts(
            ((part.codes, part.items()) for part in parts), root, Path(manifest.model), manifest.model_digest
        )
        return made

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights."""
        manifest = self.manifest()
        return Path(manifest.model), manifest.model_digest

    def items(self, ids: Iterable[int]) -> dict[int, Item]:
        """Return the items of some ids, read from the rows that hold them alone."""
        manifest, wanted = self.manifest(), np.unique(np.fromiter(ids, np.int64))
        found: dict[int, Item] = {}
        for shard in range(manifest.shards):
            file = self.file(shard, manifest.shards)
            if not self.has(shard, manifest.shards):
                continue
            info = self._info(shard, manifest)
            here = wanted[(wanted >= info.first) & (wanted <= info.last)]
            if len(here):
                table = _read(file, info, filters=[("id", "in", here.tolist())])
                found |= {item.id: item for item in _content(table, manifest).items()}
        return found


@dataclass(frozen=True)
class ShardContent:
    """Some rows of a shard: their codes, and of each image path, labels and uncertainty."""

    codes: Codes
    paths: list[str]
    labels: list[list[str]]
    uncertainty: list[float | None]

    def items(self) -> list[Item]:
        """Return the items of a collection, one per image."""
        return [
            Item(id_, path, labels, None if unsure is None else round(unsure, 6))
            for id_, path, labels, unsure in zip(
                self.codes.ids.tolist(), self.paths, self.labels, self.uncertainty, strict=True
            )
        ]


def _read(file: Path, info: ShardInfo, filters: Any = None) -> Any:
    """Read a shard, or some rows of it, after a check of its checksum."""
    pa, parquet = arrow()
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != info.sha256:
        raise _altered(file)
    return parquet.read_table(pa.BufferReader(content), filters=filters)


def _read_parts(file: Path, info: ShardInfo, columns: list[str] | None) -> Iterator[Any]:
    """Yield the rows of a shard, some at a time, or some columns of them, after a check of its checksum."""
    pa, parquet = arrow()
    with file.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != info.sha256:
            raise _altered(file)
        opened.seek(0)  # what is read is what was checked, though the name may be of another file by now
        for batch in parquet.ParquetFile(opened).iter_batches(_TOGETHER, columns=columns):
            yield pa.Table.from_batches([batch])


def _altered(file: Path) -> FormatError:
    return FormatError(f"{file} was altered or cut short: remove it and its .json, and run dmuh encode again")


def _nothing(manifest: Manifest) -> ShardContent:
    """Return the content of a shard without images."""
    width, sure = -(-manifest.n_bits // 8), manifest.sure
    levels = np.empty((0, sure, width), np.uint8) if sure else None
    worth = np.array(manifest.worth, np.float32) if sure else None
    return ShardContent(Codes(np.empty((0, width), np.uint8), manifest.n_bits, levels=levels, worth=worth), [], [], [])


def _content(table: Any, manifest: Manifest) -> ShardContent:
    """Return the rows of a shard as codes, paths, labels and uncertainties."""
    n, width, sure = len(table), -(-manifest.n_bits // 8), manifest.sure
    is_old = "contents" not in table.column_names  # with an uncertainty per bit, which was no probability
    codes = Codes(
        _packed(table["code"]).reshape(n, width),
        manifest.n_bits,
        ids=table["id"].to_numpy().astype(np.int64),
        levels=_packed(table["levels"]).reshape(n, sure, width) if sure else None,
        worth=np.array(manifest.worth, np.float32) if sure else None,
        contents=None if is_old else table["contents"].to_numpy().astype(np.int64),
    )
    unsure = [None] * n if is_old else table["uncertainty"].to_pylist()
    return ShardContent(codes, _paths(table), table["labels"].to_pylist(), unsure)


def _paths(table: Any) -> list[str]:
    return [os.fsdecode(path) for path in table["path"].to_pylist()]


def _packed(column: Any) -> NDArray[np.uint8]:
    """Return a column of bytes as one array, row behind row."""
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8)
