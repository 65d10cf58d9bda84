"""Encoding in shards: many processes on many machines, each of which may be killed and started again.

A folder of shards holds

    shards.json                      the model, the sources and how many shards they are cut into
    shard-00003-of-00064.parquet     id, path, labels, code (packed bits) and uncertainty (a number a bit) of each image

Which images a shard has depends on the sources and the number of shards alone. A shard is written whole or not at all,
so to go on after a crash is to run the same command: what is there is left alone. A code never depends on the images
encoded beside it, so the shards together are what one process would have made.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.encoder import Hasher
from dmuh.errors import ConfigError, DataError, FormatError, RunError
from dmuh.files import read_json, write_json, written_whole
from dmuh.images import BadImages, OnBadImage
from dmuh.index import HammingIndex, MilvusIndex
from dmuh.machine import place_in_group
from dmuh.sources import Piece, Source, arrow

_KIND = b"dmuh shard 1"
_INDICES = (("SLURM_PROCID", "SLURM_NTASKS"), ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"))


@dataclass(frozen=True)
class Manifest:
    """What all shards of a folder have in common."""

    model: str
    model_digest: str
    n_bits: int
    source: str  # digest of what is encoded
    shards: int


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
            return Manifest(**read_json(self._manifest_file))
        except TypeError as error:
            raise FormatError(f"{self._manifest_file} is not a list of shards that this dmuh reads") from error

    def begin(self, manifest: Manifest) -> None:
        """Write what the shards have in common; a folder with shards of something else is refused."""
        if not self.exists:
            write_json(self._manifest_file, asdict(manifest))
        kept = self.manifest()
        same = {"model": "model_digest", "list of images": "source", "number of shards": "shards"}
        other = [what for what, name in same.items() if getattr(kept, name) != getattr(manifest, name)]
        if other:
            raise RunError(f"{self.path} holds shards of another {' and '.join(other)}: choose another folder")

    def missing(self) -> list[int]:
        """Return which shards are not there yet, counted from 0."""
        n = self.manifest().shards
        return [shard for shard in range(n) if not self.file(shard, n).is_file()]

    def parts(self) -> Iterator["Part"]:
        """Yield what is in each shard; all of them must be there."""
        manifest, missing = self.manifest(), self.missing()
        if missing:
            raise DataError(
                f"{self.path} misses {len(missing)} of {manifest.shards} shards, the first is {missing[0] + 1}: "
                "run the same dmuh encode again"
            )
        for shard in range(manifest.shards):
            yield _read(self.file(shard, manifest.shards), manifest)

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
        for torn in self.path.glob(".shard-*"):  # what was being written when its process was killed
            torn.unlink(missing_ok=True)
        items = [item for part in parts for item in part.items()]
        Collection(self.path).write_items(codes, items, Path(manifest.model), manifest.model_digest)
        return codes

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights."""
        manifest = self.manifest()
        return Path(manifest.model), manifest.model_digest

    def items(self, ids: Iterable[int]) -> dict[int, Item]:
        """Return the items of some ids, read from the rows that hold them alone."""
        _, parquet = arrow()
        manifest, wanted = self.manifest(), sorted(set(ids))
        if not wanted:
            return {}
        files = [self.file(shard, manifest.shards) for shard in range(manifest.shards)]
        table = parquet.read_table([file for file in files if file.is_file()], filters=[("id", "in", wanted)])
        return {item.id: item for item in _part(table, manifest).items()}


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


def encode_shard(
    hasher: Hasher,
    source: Source,
    folder: Shards,
    shard: int,
    *,
    on_bad_image: OnBadImage = "fail",
    bad: BadImages | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Encode one shard of a folder that was begun, counted from 0, unless it is there."""
    pa, parquet = arrow()
    manifest = folder.manifest()
    file = folder.file(shard, manifest.shards)
    if file.is_file():
        return
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("path", pa.binary()),  # a file's name need not be Unicode
            ("labels", pa.list_(pa.string())),
            ("code", pa.binary(-(-manifest.n_bits // 8))),
            ("uncertainty", pa.list_(pa.float32())),
        ],
        metadata={"kind": _KIND, "model": manifest.model_digest, "shard": f"{shard} of {manifest.shards}"},
    )
    with written_whole(file) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for piece in source.pieces(shard, manifest.shards):
            codes = hasher.encode(
                piece.images, ids=piece.ids, on_bad_image=on_bad_image, bad=bad, workers=workers, progress=progress
            )
            writer.write_table(_table(pa, schema, codes, piece))


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


def _read(file: Path, manifest: Manifest) -> Part:
    """Read a shard, checked against what all shards have in common."""
    pa, parquet = arrow()
    try:
        table = parquet.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{file} is cut short or not a shard: remove it and run dmuh encode again") from error
    about = table.schema.metadata or {}
    if about.get(b"kind") != _KIND or about.get(b"model") != manifest.model_digest.encode():
        raise FormatError(f"{file} is not a shard of this folder's model: remove it and run dmuh encode again")
    return _part(table, manifest)


def _part(table: Any, manifest: Manifest) -> Part:
    """Return the rows of a shard as codes, paths and labels."""
    n, width = len(table), -(-manifest.n_bits // 8)
    bits = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8).reshape(n, width)
    unsure = table["uncertainty"].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    ids = table["id"].to_numpy().astype(np.int64)
    codes = Codes(bits, manifest.n_bits, unsure.reshape(n, -1) if len(unsure) else None, ids)
    return Part(codes, [os.fsdecode(path) for path in table["path"].to_pylist()], table["labels"].to_pylist())
