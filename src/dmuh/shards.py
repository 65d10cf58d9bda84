"""Encoding in shards: many processes on many machines, each of which may be killed and started again.

A folder of shards holds

    shards.json                      the model, the sources and how many shards they are cut into
    shard-00003-of-00064.parquet     id, path, labels, code (packed bits) and uncertainty (a number a bit) of each image

Which images a shard has depends on the sources and the number of shards alone. A shard is written whole or not at all,
so to go on after a crash is to run the same command: what is there is left alone. A code never depends on the images
encoded beside it, so the shards together are what one process would have made.
"""

import os
from collections.abc import Callable
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

    def merge(self) -> Codes:
        """Make a collection of all shards in the same folder; return its codes, in the order of the images."""
        manifest, missing = self.manifest(), self.missing()
        if missing:
            raise DataError(
                f"{self.path} misses {len(missing)} of {manifest.shards} shards, the first is {missing[0] + 1}: "
                "run the same dmuh encode again"
            )
        read = [_read(self.file(shard, manifest.shards), manifest) for shard in range(manifest.shards)]
        bits, ids = (np.concatenate([shard[name] for shard in read]) for name in ("bits", "ids"))
        unsure = np.concatenate([shard["uncertainty"] for shard in read]).reshape(len(ids), -1 if len(ids) else 0)
        codes = Codes(bits, manifest.n_bits, unsure if unsure.shape[1] else None, ids)
        whole = codes.image_uncertainty
        known = ((path, labels) for shard in read for path, labels in zip(shard["paths"], shard["labels"], strict=True))
        items = [
            Item(id_, path, labels, None if whole is None else round(float(whole[row]), 6))
            for row, (id_, (path, labels)) in enumerate(zip(ids.tolist(), known, strict=True))
        ]
        for torn in self.path.glob(".shard-*"):  # what was being written when its process was killed
            torn.unlink(missing_ok=True)
        Collection(self.path).write_items(codes, items, Path(manifest.model), manifest.model_digest)
        return codes


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


def _read(file: Path, manifest: Manifest) -> dict[str, Any]:
    """Read a shard, checked against what all shards have in common."""
    pa, parquet = arrow()
    try:
        table = parquet.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{file} is cut short or not a shard: remove it and run dmuh encode again") from error
    about = table.schema.metadata or {}
    if about.get(b"kind") != _KIND or about.get(b"model") != manifest.model_digest.encode():
        raise FormatError(f"{file} is not a shard of this folder's model: remove it and run dmuh encode again")
    n, width = len(table), -(-manifest.n_bits // 8)
    columns = table.to_pydict()
    return {
        "ids": np.asarray(columns["id"], np.int64),
        "paths": [os.fsdecode(path) for path in columns["path"]],
        "labels": columns["labels"],
        "bits": np.frombuffer(b"".join(columns["code"]), np.uint8).reshape(n, width),
        "uncertainty": np.array(columns["uncertainty"], np.float32).reshape(-1),
    }
