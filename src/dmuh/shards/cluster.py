"""Encoding on a Ray cluster: actors of Ray Data load the encoder once and make one shard after the other.

What they write is what `encode_shard` writes, so a folder can be begun by one machine and finished by a cluster.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.encoder import Hasher
from dmuh.errors import DataError, DmuhError, MissingExtraError
from dmuh.images import OnBadImage, Reading
from dmuh.shards.encoding import encode_shard
from dmuh.shards.folder import Shards
from dmuh.shards.sources import ImageSource


def find_ray() -> Any:
    """Return the library Ray, with its part for data."""
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise MissingExtraError("encoding on a Ray cluster", "ray") from error
    return ray


def encode_on_ray(run: Path, source: ImageSource, folder: Shards, shards: Sequence[int], reading: Reading) -> None:
    """Encode shards of a folder that was begun, counted from 0, on the cluster that Ray finds, or on this machine.

    Run, images and folder must lie where all machines of the cluster see them by the same names. An actor takes a GPU
    where the cluster has some, else a core.
    """
    ray, missing = find_ray(), folder.missing()
    shards = [shard for shard in shards if shard in missing]
    if not shards:
        return
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    per_actor = {"num_gpus": 1} if ray.cluster_resources().get("GPU") else {"num_cpus": 1}
    rows = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
    made = rows.map(
        _ShardEncoder,
        fn_constructor_args=(_Task(run, source, folder, reading.on_bad_image),),
        concurrency=(1, len(shards)),
        **per_actor,
    )
    with reading.progress("encoding", None) as advance:
        for row in made.iter_rows():
            if row["error"]:
                raise DataError(row["error"])
            reading.bad.reasons.update(zip(row["bad"], row["reasons"], strict=True))
            advance(row["images"])


@dataclass(frozen=True)
class _Task:
    """What every actor gets."""

    run: Path
    source: ImageSource
    folder: Shards
    on_bad_image: OnBadImage


class _ShardEncoder:
    """An actor of Ray: loads the network once, then encodes shards."""

    def __init__(self, task: _Task) -> None:
        self._task = task
        self._hasher = Hasher.load(task.run)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Encode one shard; return how many images it has and which were bad, or the sentence that says what failed."""
        task, counts, error = self._task, [0], ""
        reading = Reading(0, task.on_bad_image, progress=lambda *_: nullcontext(counts.append))
        try:
            encode_shard(self._hasher, task.source, task.folder, int(row["shard"]), reading)
        except DmuhError as failure:
            error = str(failure)
        bad = reading.bad.reasons
        return {"images": sum(counts), "bad": [*bad], "reasons": [*bad.values()], "error": error}
