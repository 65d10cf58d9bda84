"""dmuh search."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli.console import say, say_json, say_table, warn
from dmuh.cli.encode import reading_by
from dmuh.cli.milvus import open_milvus
from dmuh.cli.options import Engine, Json, OnBadImage
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, DataError, RunError, needs_torch

if TYPE_CHECKING:
    from dmuh.codes import Codes
    from dmuh.collection import Item
    from dmuh.datasets import Dataset
    from dmuh.encoder import Hasher
    from dmuh.index import Index


@stoppable()
def search(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder made by `dmuh index`.")],
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES", help="Query images: files and folders; or a .npy file of vectors."),
    ],
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="How many of the nearest images.")] = 10,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Instead: all images within this distance, in bits.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the queries and what was found to this .png file.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the run or export of the index, if it moved.")
    ] = None,
    on_bad_image: OnBadImage = None,
    engine: Engine = None,
    as_json: Json = False,
) -> None:
    """Find the images of an index that are nearest to query images.

    Example: dmuh search photos.index query.jpg --sheet found.png
    """
    from dmuh.collection import Collection
    from dmuh.datasets import load_images
    from dmuh.shards import Shards

    if sheet and sheet.suffix.lower() != ".png":
        raise ConfigError(f"--sheet must be a .png file, got {sheet}")
    with needs_torch("encoding query images"):
        whole, shards = Collection(index_folder), Shards(index_folder)
        searched = whole.load_index() if engine is None else open_milvus(engine, index_folder)
        collection = shards if shards.exists and not whole.exists else whole
        hasher = _load_model(index_folder, *collection.model(), model)
    data, reading = load_images(images) if hasher.takes_images else _vectors(images), reading_by(on_bad_image)
    queries = hasher.encode(data.images, reading=reading)
    if len(reading.bad):
        warn(reading.bad.summary())
    matches = _matches(searched, queries, k, radius)
    items = collection.items(id_ for pairs in matches for _, id_ in pairs)
    percentiles = whole.uncertainty_percentiles() if whole.exists else None
    results = _results(data, queries, matches, items, percentiles)
    if sheet:
        _draw_sheet(results, sheet)
    if as_json:
        say_json(results)
    else:
        _say_results(results)
        if sheet:
            say(f"drawn to {sheet}")


def _load_model(index: Path, made_by: Path, digest: str, model: Path | None) -> "Hasher":
    """Load the model whose codes an index holds: from where it was when they were made, or from `model`."""
    from dmuh.encoder import Hasher

    if model is None and not made_by.exists():
        raise RunError(f"{made_by}, the model of {index}, does not exist: if it moved, say where it is by --model")
    hasher = Hasher.load(model or made_by)
    if hasher.digest != digest:
        other = f"{index} was made by another model than {model or made_by}"
        raise DataError(f"{other}: give the right one by --model, or index the images again")
    return hasher


def _results(
    data: "Dataset",
    queries: "Codes",
    matches: list[list[tuple[int, int]]],
    items: "dict[int, Item]",
    percentiles: list[float] | None,
) -> list[dict[str, Any]]:
    """Return what was found for each query: its path, its uncertainty, and its matches, the nearest first."""
    from dmuh.codes import less_certain_than

    unsure = queries.image_uncertainty
    return [
        {
            "query": data.path(position),
            "uncertainty": None if unsure is None else round(float(unsure[row]), 6),
            "less_certain_than": (
                None if unsure is None or percentiles is None else less_certain_than(float(unsure[row]), percentiles)
            ),
            "matches": [{"distance": distance, **vars(items[id_])} for distance, id_ in matches[row]],
        }
        for row, position in enumerate(queries.ids.tolist())
    ]


def _say_results(results: list[dict[str, Any]]) -> None:
    """Print a table for each query."""
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


def _vectors(sources: list[Path]) -> "Dataset":
    """Read the feature vectors that stand in for query images."""
    from dmuh.datasets.features import load_features

    if len(sources) > 1:
        raise ConfigError(f"this index was made from feature vectors: give one .npy file, got {len(sources)} files")
    return load_features(sources[0])


def _matches(searched: "Index", queries: "Codes", k: int, radius: int | None) -> list[list[tuple[int, int]]]:
    """Return (distance, id) of what is found for each query."""
    if radius is None:
        found = searched.search(queries, k)
        rows = zip(found.distances.tolist(), found.ids.tolist(), strict=True)
        return [list(zip(distances, ids, strict=True)) for distances, ids in rows]
    near = searched.within(queries, radius)
    pairs = list(zip(near.distances.tolist(), near.ids.tolist(), strict=True))
    ends = near.offsets.tolist()
    return [pairs[begin:end] for begin, end in itertools.pairwise(ends)]


def _draw_sheet(results: list[dict[str, Any]], file: Path) -> None:
    """Draw each query and its matches as a row; say if images are not where they were indexed."""
    from dmuh.catalogue.paths import displayed
    from dmuh.files import written_whole
    from dmuh.report.thumbnails import Tile, contact_sheet

    rows = [
        [
            Tile(result["query"], "query", displayed(Path(result["query"]).name)),
            *(
                Tile(m["path"], f"distance {m['distance']}", displayed(";".join(m["labels"])))
                for m in result["matches"]
            ),
        ]
        for result in results
    ]
    paths = {match["path"] for result in results for match in result["matches"]}
    gone = sorted(path for path in paths if not Path(path).is_file())
    if gone:
        warn(
            f"{len(gone):,} of {len(paths):,} found images are grey in the picture, as they are not where they were "
            f"indexed, such as {gone[0]}: if they moved, index them again with --replace"
        )
    picture = contact_sheet(rows)
    with written_whole(file) as temporary:
        picture.save(temporary, "PNG")
