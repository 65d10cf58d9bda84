"""Encoding in shards: many processes on many machines, each of which may be killed and started again.

A folder of shards holds

    shards.json                      the model, the sources and how many shards they are cut into
    shard-00003-of-00064.parquet     id, path, labels, code (packed bits) and uncertainty (per bit) of each image
    shard-00003-of-00064.json        the checksum of that file, what it belongs to, and the ids that it spans

Which images a shard has depends on the sources and the number of shards alone. A shard is written whole or not at all,
and counts once its checksum is written, so to go on after a crash is to run the same command: what is there is left
alone. A code never depends on the images encoded beside it, so the shards together are what one process would have
made. A shard that was altered, or is of other images or another model, is refused.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.documents import digest_of, file_digest, read_document, write_document
from dmuh.encoder import Hasher
from dmuh.errors import ConfigError, DataError, FormatError, RunError
from dmuh.files import clear_torn, written_whole
from dmuh.images import Reading
from dmuh.index import HammingIndex, MilvusIndex
from dmuh.machine import place_in_group
from dmuh.shards.sources import Piece, Source, arrow

_KIND, _SEAL = "dmuh shards", "dmuh shard"
_INDICES = (("SLURM_PROCID", "SLURM_NTASKS"), ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"))


@dataclass(frozen=True)
class Manifest:
    """What all shards of a folder have in common."""

    model: str
    model_digest: str
    n_bits: int
    source: str  # digest of what is encoded
    shards: int

    def digest(self) -> str:
        """Return what each shard says it belongs to; where the model lies does not count."""
        return digest_of({key: value for key, value in asdict(self).items() if key != "model"})


@dataclass(frozen=True)
class Seal:
    """What is known of one shard: what it is of, which one it is, its checksum, and the ids that it spans."""

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
        """Return where a shard lies, counted from 0."""
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
        """Write what the shards have in common; a folder with shards of something else is refused.

        Of processes that begin a folder at once the first one says what it is of.
        """
        if not self.exists:
            with suppress(FileExistsError):
                write_document(self._manifest_file, _KIND, asdict(manifest), replace=False)
        kept = self.manifest()
        same = {"model": "model_digest", "list of images": "source", "number of shards": "shards"}
        other = [what for what, name in same.items() if getattr(kept, name) != getattr(manifest, name)]
        if other:
            raise RunError(f"{self.path} holds shards of another {' and '.join(other)}: choose another folder")

    def missing(self) -> list[int]:
        """Return which shards are not there yet, counted from 0."""
        n = self.manifest().shards
        return [shard for shard in range(n) if not self._is_there(shard, n)]

    def _is_there(self, shard: int, shards: int) -> bool:
        file = self.file(shard, shards)
        return file.is_file() and file.with_suffix(".json").is_file()

    def parts(self) -> Iterator["Part"]:
        """Yield what is in each shard; all of them must be there."""
        manifest, missing = self.manifest(), self.missing()
        if missing:
            raise DataError(
                f"{self.path} misses {len(missing)} of {manifest.shards} shards, the first is {missing[0] + 1}: "
                "run the same dmuh encode again"
            )
        for shard in range(manifest.shards):
            file = self.file(shard, manifest.shards)
            yield _part(_read(file, self._seal(shard, manifest)), manifest)

    def _seal(self, shard: int, manifest: Manifest) -> Seal:
        """Read what is known of a shard, if it belongs here."""
        file = self.file(shard, manifest.shards)
        seal = Seal(**read_document(file.with_suffix(".json"), _SEAL))
        if (seal.of, seal.shard) != (manifest.digest(), f"{shard} of {manifest.shards}"):
            raise FormatError(
                f"{file} is another shard, or one of another model or of other images: remove it and its .json, and "
                "run dmuh encode again"
            )
        return seal

    def fill(self, index: HammingIndex | MilvusIndex, progress: Callable[[int], None] = lambda _: None) -> None:
        """Give an index the codes of all shards, one shard in memory at a time; what it has already is left alone.

        So a load that broke off goes on where it was. Milvus gets the labels too.
        """
        for part in self.parts():
            if isinstance(index, MilvusIndex):
                index.add_missing(part.codes, part.labels)
            else:
                index.add(part.codes[~np.isin(part.codes.ids, index.ids)])
            progress(len(part.codes))

    def merge(self) -> Codes:
        """Make a collection of all shards in the same folder; return its codes, in the order of the images."""
        manifest, parts = self.manifest(), list(self.parts())
        unsure = [part.codes.uncertainty for part in parts if part.codes.uncertainty is not None]
        codes = Codes(
            np.concatenate([part.codes.bits for part in parts]),
            manifest.n_bits,
            np.concatenate(unsure) if unsure else None,
            np.concatenate([part.codes.ids for part in parts]),
        )
        clear_torn(self.path, "shard-")
        items = [item for part in parts for item in part.items()]
        Collection(self.path).write_items(codes, items, Path(manifest.model), manifest.model_digest)
        return codes

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
            if not self._is_there(shard, manifest.shards):
                continue
            seal = self._seal(shard, manifest)
            here = wanted[(wanted >= seal.first) & (wanted <= seal.last)]
            if len(here):
                table = _read(file, seal, filters=[("id", "in", here.tolist())])
                found |= {item.id: item for item in _part(table, manifest).items()}
        return found


@dataclass(frozen=True)
class Part:
    """What some rows of shards say: codes, and path and labels of each."""

    codes: Codes
    paths: list[str]
    labels: list[list[str]]

    def items(self) -> list[Item]:
        """Return what is known of each image."""
        unsure = self.codes.image_uncertainty
        return [
            Item(id_, self.paths[row], self.labels[row], None if unsure is None else round(float(unsure[row]), 6))
            for row, id_ in enumerate(self.codes.ids.tolist())
        ]


def encode_shard(hasher: Hasher, source: Source, folder: Shards, shard: int, reading: Reading | None = None) -> None:
    """Encode one shard of a folder that was begun, counted from 0, unless it is there."""
    pa, parquet = arrow()
    manifest = folder.manifest()
    file = folder.file(shard, manifest.shards)
    if folder._is_there(shard, manifest.shards):
        return
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("path", pa.binary()),  # a file's name need not be Unicode
            ("labels", pa.list_(pa.string())),
            ("code", pa.binary(-(-manifest.n_bits // 8))),
            ("uncertainty", pa.list_(pa.float32())),
        ]
    )
    spans: list[int] = []
    with written_whole(file) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for piece in source.pieces(shard, manifest.shards):
            codes = hasher.encode(piece.images, ids=piece.ids, reading=reading)
            writer.write_table(_table(pa, schema, codes, piece))
            spans += [codes.ids[0], codes.ids[-1]] if len(codes) else []
    seal = Seal(manifest.digest(), f"{shard} of {manifest.shards}", file_digest(file), *_ends(spans))
    write_document(file.with_suffix(".json"), _SEAL, asdict(seal))


def parse_shard(text: str) -> tuple[int, int]:
    """Return which shard, counted from 0, of how many K/N means, where K is counted from 1."""
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise ConfigError(f"--shard must be K/N with K from 1 to N, such as 3/64, got {text}")
    return int(number) - 1, int(total)


def own_shards(shards: int) -> list[int]:
    """Return which shards, counted from 0, are dealt to this process.

    By the index that torchrun, Slurm or Kubernetes gave it; one that has none makes all.
    """
    rank, size = place_in_group()
    for index, count in _INDICES:
        if size == 1 and index in os.environ:
            rank, size = int(os.environ[index]), int(os.environ.get(count, shards))
    return list(range(rank, shards, size))


def _table(pa: Any, schema: Any, codes: Codes, piece: Piece) -> Any:
    """Return the rows of a shard for the images of a piece that could be read."""
    rows = np.searchsorted(piece.ids, codes.ids)
    unsure = [[]] * len(codes) if codes.uncertainty is None else list(codes.uncertainty)
    columns = {
        "id": codes.ids,
        "path": [os.fsencode(piece.names[row]) for row in rows],
        "labels": [piece.labels[row] for row in rows],
        "code": [row.tobytes() for row in codes.bits],
        "uncertainty": unsure,
    }
    return pa.table(columns, schema)


def _ends(ids: list[int]) -> tuple[int, int]:
    """Return the smallest and the largest id, of none such that no id lies between them."""
    return (int(min(ids)), int(max(ids))) if ids else (0, -1)


def _read(file: Path, seal: Seal, filters: Any = None) -> Any:
    """Read a shard, or some rows of it, as it was written and not otherwise."""
    pa, parquet = arrow()
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != seal.sha256:
        raise FormatError(f"{file} was altered or cut short: remove it and its .json, and run dmuh encode again")
    return parquet.read_table(pa.BufferReader(content), filters=filters)


def _part(table: Any, manifest: Manifest) -> Part:
    """Return the rows of a shard as codes, paths and labels."""
    n, width = len(table), -(-manifest.n_bits // 8)
    bits = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8).reshape(n, width)
    unsure = table["uncertainty"].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    ids = table["id"].to_numpy().astype(np.int64)
    codes = Codes(bits, manifest.n_bits, unsure.reshape(n, -1) if len(unsure) else None, ids)
    return Part(codes, [os.fsdecode(path) for path in table["path"].to_pylist()], table["labels"].to_pylist())
