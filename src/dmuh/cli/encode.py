"""dmuh encode, and the encoding that index and search begin with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.cli.options import DatasetOptions, Json, Sure, Workers, flag, with_groups
from dmuh.cli.shards import chosen_sure, encode_shards
from dmuh.cli.stopping import AGAIN, GOES_ON, stoppable
from dmuh.errors import ConfigError, DataError, needs_torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dmuh.codes import Codes
    from dmuh.collection import Collection
    from dmuh.datasets import Dataset
    from dmuh.encoder import Hasher
    from dmuh.images import Reading

_MANY = 1000  # images whose features are worth the seconds that it takes to load torch
_SHARDS = "Many images, many machines"
Model = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or one written by `dmuh export`.")
]
Replace = Annotated[bool, flag("--replace", help="Make the index in --out anew, if it holds one.")]


def _how_to_go_on(**options: Any) -> str:
    from dmuh.shards import Shards

    return f"shards that are done are kept: {GOES_ON}" if Shards(options["out"]).exists else AGAIN


@with_groups
@stoppable(_how_to_go_on)
def encode(
    run: Model,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES", help="Image files and folders; with --dataset its folder or file."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the codes to.")],
    source: DatasetOptions = DatasetOptions(),  # noqa: B008 (never used: each option has its default)
    sure: Sure = None,
    workers: Workers = None,
    replace: Replace = False,
    as_json: Json = False,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_SHARDS,
            help="Write N Parquet files; the same command again makes those that are missing.",
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", rich_help_panel=_SHARDS, help="Write file K of N alone, such as 3/64.")
    ] = None,
    on_ray: Annotated[
        bool,
        typer.Option("--ray", metavar="", rich_help_panel=_SHARDS, help="Have a Ray cluster write the --shards."),
    ] = False,
) -> None:
    """Turn images into codes, without an index.

    Example: dmuh encode runs/photos photos --dataset folder --out photos.codes

    With --dataset folder or csv the images keep their labels. Next: dmuh index photos.codes.

    Parquet lists and tar files as WebDataset has them are encoded in shards. Under torchrun, Slurm and Kubernetes the
    processes share the --shards.
    """
    if shards or shard or on_ray or any(path.suffix.lower() in (".tar", ".parquet") for path in images):
        from dmuh.shards.sources import DatasetSource, open_source

        images = [path.absolute() for path in images] if on_ray else images  # actors run in folders of their own
        parts = open_source(images) or DatasetSource(load(images, source))
        reading = reading_by(source.on_bad_image, workers)
        encode_shards(
            run, parts, out, shards=shards, shard=shard, sure=sure, reading=reading, on_ray=on_ray, as_json=as_json
        )
        return
    codes = encode_to(out, run, images, source, sure, workers, replace)
    result = {"codes": str(out), "images": len(codes), "n_bits": codes.n_bits, "sure": codes.sure}
    say_json(result) if as_json else say(f"{len(codes):,} images encoded with {codes.n_bits} bits: {out}")


def encode_to(
    out: Path,
    run: Path,
    images: list[Path],
    source: DatasetOptions,
    sure: int | None,
    workers: int | None,
    replace: bool,
) -> "Codes":
    """Encode images or a data set into a collection folder; an index that is there is replaced only on demand."""
    from dmuh.collection import Collection, Source

    with needs_torch("encoding images"):
        from dmuh.encoder import Hasher
        from dmuh.encoder.captions import keep_captions

    refuse_to_replace(Collection(out), replace)
    data = load(images, source)
    hasher = Hasher.load(run)
    sure_bits = chosen_sure(sure, hasher)
    reading = reading_by(source.on_bad_image, workers)
    stamps = data.stamps()  # before the images are read: one that is changed meanwhile is taken up by --sync
    codes = _encode_by_cache(run, hasher, data, reading, sure_bits)
    if codes is None:
        codes = hasher.encode(data.images, reading=reading, sure=sure_bits)
    if len(reading.bad):
        warn(reading.bad.summary())
    Collection(out).write(codes, data, run, hasher.digest, source=Source.of(images, source.given()), files=stamps)
    keep_captions(Collection(out), hasher)
    return codes


def _encode_by_cache(run: Path, hasher: "Hasher", data: "Dataset", reading: "Reading", sure: int) -> "Codes | None":
    """Encode a data set whose features a training left in the cache; None where that is not so or would not pay."""
    from dmuh.machine import cache_folder
    from dmuh.runs import Run

    if len(data) < _MANY or not (Run(run).finished and (cache_folder() / "activations").is_dir()):
        return None
    try:
        from dmuh.trainer.cached_codes import encode_by_cache
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    return encode_by_cache(Run(run), hasher, data, reading, _MANY, sure)


def refuse_to_replace(collection: "Collection", replace: bool) -> None:
    """Raise if a folder holds an index that was not to be replaced."""
    if not replace and collection.has_index:
        raise DataError(f"{collection.path} holds an index already: make it anew by --replace, or give another --out")


def load(images: list[Path], source: DatasetOptions) -> "Dataset":
    """Read image files and folders, or the data set that the options name."""
    return load_by(images, source.given())


def load_by(images: list[Path], options: "Mapping[str, Any]") -> "Dataset":
    """Read the same by options that are given by their names."""
    from dmuh.config import DataSettings, build
    from dmuh.datasets import load_dataset, load_images

    problems: list[str] = []
    settings = build(DataSettings, {"dataset": "images", "data": str(images[0]), **options}, problems)
    if settings is None:
        raise ConfigError("; ".join(problems))
    if settings.dataset == "images":
        data = load_images(images)
    elif len(images) > 1:
        raise ConfigError(f"--dataset {settings.dataset} takes one folder or file, got {len(images)}")
    else:
        data = load_dataset(settings)
    for note in data.notes:
        warn(note)
    return data


def reading_by(on_bad_image: str | None, workers: int | None = None) -> "Reading":
    """Return how images are read by these options, with a bar."""
    from dmuh.images import OnBadImage, Reading

    if on_bad_image not in (None, "fail", "skip"):
        raise ConfigError(f"--on-bad-image must be fail or skip, got {on_bad_image!r}")
    return Reading(workers, cast(OnBadImage, on_bad_image or "fail"), progress=console.counting_bar)
