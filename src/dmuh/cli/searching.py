"""dmuh encode, index and search."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dmuh.cli import console
from dmuh.cli.beyond import encode_shards, fill_milvus, open_milvus
from dmuh.cli.console import say, say_json, say_table, warn
from dmuh.errors import ConfigError, DataError, needs_torch

if TYPE_CHECKING:
    from dmuh.codes import Codes
    from dmuh.datasets import Dataset
    from dmuh.encoder import Hasher
    from dmuh.images import Reading
    from dmuh.index import Index

Engine = Annotated[
    str | None,
    typer.Option("--index", help="Search by Milvus: milvus:FILE.db, or milvus:http://HOST:PORT of a server."),
]
Workers = Annotated[int | None, typer.Option(min=0, max=256, help="Processes that read images; else chosen.")]


def encode(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or of `dmuh export`.")],
    images: Annotated[list[Path], typer.Argument(help="Image files and folders; with --dataset its folder or file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    dataset: console.DatasetName = None,
    path_format: console.PathFormat = None,
    path_column: console.PathColumn = None,
    label_column: console.LabelColumn = None,
    label_separator: console.LabelSeparator = None,
    on_bad_image: console.OnBadImage = None,
    workers: Workers = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Write so many Parquet shards; restart makes the rest.")
    ] = None,
    shard: Annotated[str | None, typer.Option(help="Write shard K of N alone, such as 3/64.")] = None,
    on_ray: Annotated[bool, typer.Option("--ray", help="Let the actors of a Ray cluster write --shards.")] = False,
    as_json: console.Json = False,
) -> None:
    """Turn images into codes.

    Labels are kept with --dataset folder or csv; without it the images have none. Parquet lists and tar files in
    WebDataset's layout are encoded in shards. Under torchrun, Slurm and Kubernetes --shards are dealt out to the
    processes; dmuh index makes them searchable.
    """
    options = console.given(
        dataset=dataset, path_format=path_format, path_column=path_column, label_column=label_column,
        label_separator=label_separator, on_bad_image=on_bad_image,
    )  # fmt: skip
    if shards or shard or on_ray or any(path.suffix.lower() in (".tar", ".parquet") for path in images):
        from dmuh.shards.sources import DatasetSource, open_source

        images = [path.absolute() for path in images] if on_ray else images  # actors run in folders of their own
        source = open_source(images) or DatasetSource(_load(images, options))
        reading = _reading(on_bad_image, workers)
        encode_shards(run, source, out, shards=shards, shard=shard, reading=reading, on_ray=on_ray, as_json=as_json)
        return
    codes = _encode(run, images, out, options, workers)
    result = {"codes": str(out), "images": len(codes), "n_bits": codes.n_bits}
    say_json(result) if as_json else say(f"{len(codes):,} images encoded with {codes.n_bits} bits: {out}")


def index(
    source: Annotated[Path, typer.Argument(help="Folder of a run, of `dmuh export`, or of codes by `dmuh encode`.")],
    images: Annotated[
        list[Path] | None, typer.Argument(help="Image files and folders, if the source is a run.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write; codes are indexed in place.")
    ] = None,
    dataset: console.DatasetName = None,
    path_format: console.PathFormat = None,
    path_column: console.PathColumn = None,
    label_column: console.LabelColumn = None,
    label_separator: console.LabelSeparator = None,
    on_bad_image: console.OnBadImage = None,
    workers: Workers = None,
    engine: Engine = None,
    as_json: console.Json = False,
) -> None:
    """Make images searchable: encode them, unless they are, and index their codes.

    Example: dmuh index runs/photos my-photos --out photos.index
    """
    from dmuh.collection import Collection
    from dmuh.shards import Shards

    if Collection(source).exists or Shards(source).exists:
        if images or out:
            raise ConfigError(f"{source} holds codes, which are indexed in place: leave out images and --out")
        if engine is None and not Collection(source).exists:
            Shards(source).merge()
        out = source
    elif not images or out is None:
        raise ConfigError("to index images give a run, the images and --out: dmuh index RUN IMAGES --out INDEX")
    else:
        options = console.given(
            dataset=dataset, path_format=path_format, path_column=path_column, label_column=label_column,
            label_separator=label_separator, on_bad_image=on_bad_image,
        )  # fmt: skip
        _encode(source, images, out, options, workers)
    built = Collection(out).build_index() if engine is None else fill_milvus(engine, out)
    result = {"index": str(out), "images": len(built), "n_bits": built.n_bits}
    say_json(result) if as_json else say(f"{len(built):,} images indexed: {out}")


def search(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder made by `dmuh index`.")],
    images: Annotated[list[Path], typer.Argument(help="Query images: files and folders; or a .npy file of vectors.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many nearest images.")] = 10,
    radius: Annotated[int | None, typer.Option(min=0, help="Instead: all images within this distance.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Draw queries and answers to this PNG file.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of the model, if it moved since then.")] = None,
    on_bad_image: console.OnBadImage = None,
    engine: Engine = None,
    as_json: console.Json = False,
) -> None:
    """Find the nearest images of query images.

    Example: dmuh search photos.index query.jpg --sheet answer.png
    """
    from dmuh.codes import less_certain_than
    from dmuh.collection import Collection
    from dmuh.datasets import load_images
    from dmuh.shards import Shards

    with needs_torch("encoding query images"):
        from dmuh.encoder import Hasher

    if sheet and sheet.suffix.lower() != ".png":
        raise ConfigError(f"--sheet must be a .png file, got {sheet}")
    whole, shards = Collection(index_folder), Shards(index_folder)
    searched = whole.load_index() if engine is None else open_milvus(engine, index_folder)
    collection = shards if shards.exists and not whole.exists else whole
    path, digest = collection.model()
    hasher = Hasher.load(model or path)
    if hasher.digest != digest:
        raise DataError(f"{index_folder} was made by another model than {model or path}: index the images again")
    data = load_images(images) if hasher.takes_images else _vectors(images)
    queries = _encode_images(hasher, data, _reading(on_bad_image))
    answers = _answers(searched, queries, k, radius)
    items = collection.items(id_ for answer in answers for _, id_ in answer)
    unsure, percentiles = queries.image_uncertainty, whole.uncertainty_percentiles() if whole.exists else None
    results: list[dict[str, Any]] = [
        {
            "query": data.path(position),
            "uncertainty": None if unsure is None else round(float(unsure[row]), 6),
            "less_certain_than": (
                None if unsure is None or percentiles is None else less_certain_than(float(unsure[row]), percentiles)
            ),
            "matches": [{"distance": distance, **vars(items[id_])} for distance, id_ in answers[row]],
        }
        for row, position in enumerate(queries.ids.tolist())
    ]
    if sheet:
        _draw_sheet(results, sheet)
    if as_json:
        say_json(results)
        return
    for result in results:
        note = "" if result["uncertainty"] is None else f" (uncertainty {result['uncertainty']:.4f})"
        if result["less_certain_than"] is not None:
            note = f"{note[:-1]}, more than {result['less_certain_than']}% of the collection)"
        rows = [
            {
                "distance": str(match["distance"]),
                "uncertainty": "" if match["uncertainty"] is None else f"{match['uncertainty']:.4f}",
                "labels": ";".join(match["labels"]),
                "image": match["path"],
            }
            for match in result["matches"]
        ]
        say_table(f"{result['query']}{note}", rows, empty="no image is near")
    if sheet:
        say(f"drawn to {sheet}")


def _encode(run: Path, images: list[Path], out: Path, options: dict[str, Any], workers: int | None) -> "Codes":
    """Encode images or a data set into a collection folder."""
    from dmuh.collection import Collection

    with needs_torch("encoding images"):
        from dmuh.encoder import Hasher

    data = _load(images, options)
    hasher = Hasher.load(run)
    codes = _encode_images(hasher, data, _reading(options.get("on_bad_image"), workers))
    Collection(out).write(codes, data, run, hasher.digest)
    return codes


def _load(images: list[Path], options: dict[str, Any]) -> "Dataset":
    """Read image files and folders, or the data set that the options name."""
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


def _vectors(sources: list[Path]) -> "Dataset":
    """Read the feature vectors that stand in for query images."""
    from dmuh.datasets.features import load_features

    if len(sources) > 1:
        raise ConfigError(f"this index was made from feature vectors: give one .npy file, got {len(sources)} files")
    return load_features(sources[0])


def _reading(on_bad_image: str | None, workers: int | None = None) -> "Reading":
    """Return how images are read by these flags, with a bar."""
    from dmuh.images import OnBadImage, Reading

    return Reading(workers, cast(OnBadImage, on_bad_image or "fail"), progress=console.counting_bar)


def _encode_images(hasher: "Hasher", data: "Dataset", reading: "Reading") -> "Codes":
    codes = hasher.encode(data.images, reading=reading)
    if len(reading.bad):
        warn(reading.bad.summary())
    return codes


def _answers(searched: "Index", queries: "Codes", k: int, radius: int | None) -> list[list[tuple[int, int]]]:
    """Return (distance, id) of the answers to each query."""
    if radius is None:
        matches = searched.search(queries, k)
        rows = zip(matches.distances.tolist(), matches.ids.tolist(), strict=True)
        return [list(zip(distances, ids, strict=True)) for distances, ids in rows]
    near = searched.within(queries, radius)
    pairs = list(zip(near.distances.tolist(), near.ids.tolist(), strict=True))
    ends = near.offsets.tolist()
    return [pairs[begin:end] for begin, end in itertools.pairwise(ends)]


def _draw_sheet(results: list[dict[str, Any]], file: Path) -> None:
    from dmuh.files import written_whole
    from dmuh.report.thumbnails import Tile, contact_sheet

    rows = [
        [
            Tile(result["query"], "query", Path(result["query"]).name),
            *(Tile(m["path"], f"distance {m['distance']}", ";".join(m["labels"])) for m in result["matches"]),
        ]
        for result in results
    ]
    picture = contact_sheet(rows)
    with written_whole(file) as temporary:
        picture.save(temporary, "PNG")
