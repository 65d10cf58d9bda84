"""Encoding of one shard, and which shards a process encodes."""

import os
from typing import Any

import numpy as np

from dmuh.catalogue.paths import displayed
from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.errors import ConfigError
from dmuh.files import written_whole
from dmuh.images import Reading
from dmuh.machine import place_in_group
from dmuh.shards.folder import Shards
from dmuh.shards.sources import ImageBatch, ImageSource
from dmuh.shards.sources.parquet import arrow

_RANKS = (("SLURM_PROCID", "SLURM_NTASKS"), ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"))  # rank and group size


def encode_shard(
    hasher: Hasher, source: ImageSource, folder: Shards, shard: int, reading: Reading | None = None
) -> None:
    """Encode one shard of a folder that was begun, counted from 0, unless it is there."""
    pa, parquet = arrow()
    manifest = folder.manifest()
    file = folder.file(shard, manifest.shards)
    if folder.has(shard, manifest.shards):
        return
    schema = _schema(pa, manifest.n_bits)
    spans: list[int] = []
    with (
        written_whole(file) as temporary,
        temporary.open("wb") as stream,  # opened here: the library takes no path that is not Unicode
        parquet.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        for batch in source.batches(shard, manifest.shards):
            codes = hasher.encode(batch.images, ids=batch.ids, reading=reading, sure=manifest.sure)
            writer.write_table(_table(pa, schema, codes, batch))
            spans += [codes.ids[0], codes.ids[-1]] if len(codes) else []
    folder.finish(shard, manifest, *_ends(spans))


def parse_shard(text: str) -> tuple[int, int]:
    """Read K/N, where K is counted from 1; return which shard it is, counted from 0, and how many there are."""
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise ConfigError(f"--shard must be K/N with K from 1 to N, such as 3/64, got {text}")
    return int(number) - 1, int(total)


def assigned_shards(shards: int) -> list[int]:
    """Return which shards, counted from 0, this process is to make.

    By the rank that torchrun, Slurm or Kubernetes gave it; a process without a rank makes all.
    """
    rank, size = place_in_group()
    for index, count in _RANKS:
        if size == 1 and index in os.environ:
            rank, size = int(os.environ[index]), int(os.environ.get(count, shards))
    return list(range(rank, shards, size))


def _schema(pa: Any, n_bits: int) -> Any:
    """Return the columns of a shard."""
    columns = {
        "id": pa.int64(),
        "path": pa.binary(),  # a file's name need not be UTF-8
        "labels": pa.list_(pa.string()),
        "code": pa.binary(-(-n_bits // 8)),  # packed bits
        "levels": pa.binary(),  # packed planes, one behind the other; empty without levels
        "contents": pa.int64(),  # digest by which identical images are found
        "uncertainty": pa.float32(),  # of the image as a whole
    }
    return pa.schema(list(columns.items()))


def _table(pa: Any, schema: Any, codes: Codes, batch: ImageBatch) -> Any:
    """Return the rows of a shard for those images of a batch that could be read."""
    rows = np.searchsorted(batch.ids, codes.ids)
    levels = [b""] * len(codes) if codes.levels is None else [planes.tobytes() for planes in codes.levels]
    columns = {
        "id": codes.ids,
        "path": [os.fsencode(batch.names[row]) for row in rows],
        "labels": [[displayed(label) for label in batch.labels[row]] for row in rows],
        "code": [row.tobytes() for row in codes.bits],
        "levels": levels,
        "contents": codes.contents,
        "uncertainty": codes.image_uncertainty,
    }
    return pa.table(columns, schema)


def _ends(ids: list[int]) -> tuple[int, int]:
    """Return the smallest and the largest id; for none a range that is empty."""
    return (int(min(ids)), int(max(ids))) if ids else (0, -1)
