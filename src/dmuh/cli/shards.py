"""How dmuh encode writes shards: many images, by many processes on many machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmuh.cli.console import say, say_json, warn
from dmuh.errors import ConfigError

if TYPE_CHECKING:
    from dmuh.encoder import Hasher
    from dmuh.images import Reading
    from dmuh.shards.sources import ImageSource


def chosen_sure(sure: int | None, hasher: "Hasher") -> int:
    """Return how many sure bits per bit codes get, by the option --sure; a model that has no levels gives none."""
    from dmuh.encoder.calibration import DEFAULT_SURE

    chosen = DEFAULT_SURE if sure is None else sure
    if chosen and chosen not in hasher.calibration.grades:
        warn("this model does not know how sure its bits are, so its codes are kept without sure bits: train it again")
        return 0
    return chosen


def encode_shards(
    run: Path,
    source: "ImageSource",
    out: Path,
    *,
    shards: int | None,
    shard: str | None,
    sure: int | None,
    reading: "Reading",
    on_ray: bool,
    as_json: bool,
) -> None:
    """Encode the shards that are this process's and not there yet, or have a cluster encode them."""
    from dmuh.encoder import Hasher
    from dmuh.shards import Manifest, Shards, assigned_shards, encode_shard, parse_shard
    from dmuh.shards.cluster import encode_on_ray, find_ray

    chosen = None if shard is None else parse_shard(shard)
    total = chosen[1] if chosen else shards or 1
    if shards not in (None, total):
        raise ConfigError(f"--shard {shard} and --shards {shards} do not agree: give one of them")
    if on_ray:
        find_ray()
        if reading.workers is not None:
            raise ConfigError("--workers is for this machine: the actors of --ray read their images themselves")
    mine = [chosen[0]] if chosen else assigned_shards(total)
    hasher = Hasher.load(run)
    folder = Shards(out)
    sure_bits = chosen_sure(sure, hasher)
    worth = hasher.calibration.grades[sure_bits].worth.tolist() if sure_bits else None
    folder.begin(Manifest(str(run.absolute()), hasher.digest, hasher.n_bits, source.digest(), total, worth))
    with reading.under_one_bar(f"encoding {len(mine)} of {total} shards", None) as shard_reading:
        if on_ray:
            encode_on_ray(run.absolute(), source, Shards(out.absolute()), mine, shard_reading)
        else:
            for number in mine:
                encode_shard(hasher, source, folder, number, shard_reading)
    if len(reading.bad):
        warn(reading.bad.summary())
    missing = folder.missing()
    result: dict[str, Any] = {"shards": str(out), "done": [number + 1 for number in mine], "missing": len(missing)}
    if as_json:
        say_json(result)
    else:
        rest = f"{len(missing)} of {total} are missing" if missing else f"all are there: dmuh index {out}"
        say(f"{len(mine)} shards encoded in {out}; {rest}")
