"""dmuh search."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dmuh.cli.console import say, say_json, say_table, warn
from dmuh.cli.encode import reading_by
from dmuh.cli.milvus import open_milvus
from dmuh.cli.options import Engine, Json, OnBadImage
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, DataError, RunError, needs_torch

if TYPE_CHECKING:
    from dmuh.cli.answers import Answer, Answers
    from dmuh.cli.queries import Queries
    from dmuh.collection import Item
    from dmuh.encoder import Hasher
    from dmuh.index import HammingIndex, MilvusIndex
    from dmuh.index.soft import Ranking


@stoppable()
def search(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder made by `dmuh index`.")],
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IMAGES", help="Query images: files and folders; or a .npy file of vectors."),
    ] = None,
    ids: Annotated[
        list[int] | None,
        typer.Option("--id", metavar="ID", help="Instead: images of the index as queries, by id; may be repeated."),
    ] = None,
    hexes: Annotated[
        list[str] | None,
        typer.Option("--code", metavar="HEX", help="Instead: codes, in hexadecimal digits; may be repeated."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="How many of the nearest images.")] = 10,
    radius: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Instead: all images that differ in at most N bits; with --ranking soft as is expected.",
        ),
    ] = None,
    ranking: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Order by the expected number of differing bits: soft (the default); or by the number: hamming.",
        ),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="P", help="Leave out images that share a label with a probability of less than P."
        ),
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

    Or to one of the index: dmuh search photos.index --id 17
    """
    from dmuh.cli.answers import Asked, Stored, find
    from dmuh.cli.queries import of_codes, of_ids, of_images
    from dmuh.collection import Collection
    from dmuh.collection.folder import model_of, percentiles_of
    from dmuh.collection.items import read_items
    from dmuh.shards import Shards

    if sum(map(bool, (images, ids, hexes))) != 1:
        raise ConfigError("give query images, or ids of images by --id, or codes by --code")

    asked = Asked(k, radius, cast("Ranking | None", ranking), at_least)
    if sheet and sheet.suffix.lower() != ".png":
        raise ConfigError(f"--sheet must be a .png file, got {sheet}")
    whole, shards = Collection(index_folder), Shards(index_folder)
    is_whole = whole.exists or not (engine and shards.exists)
    with ExitStack() as opened, needs_torch("encoding query images"):
        catalogue = opened.enter_context(whole.reading()) if is_whole else None
        if engine is None:
            assert catalogue is not None, "without Milvus, shards are not searched"
            index: HammingIndex | MilvusIndex = whole.index_of(catalogue)
            stored = Stored.in_catalogue(catalogue)
        else:
            index = open_milvus(engine, index_folder)
            stored = Stored(index.sure, index.codes, index.identical)
        items_of = shards.items if catalogue is None else partial(read_items, catalogue, index_folder)
        hasher = load_model(index_folder, *(shards.model() if catalogue is None else model_of(catalogue)), model)
        asked.check(hasher.calibration)
        reading = reading_by(on_bad_image)
        if ids:
            queries = of_ids(stored, items_of, index_folder, ids)
        else:
            queries = of_codes(hexes, hasher.n_bits) if hexes else of_images(hasher, images or [], reading)
        if len(reading.bad):
            warn(reading.bad.summary())
        more = replace(asked, k=k + bool(ids))  # an image of the index finds itself too, which is left out
        found = find(index, stored, queries.codes, more, hasher.calibration)
        answers = queries.without_themselves(found, k if radius is None else None)
        items = items_of({answer.id for one in answers for answer in one.found})
        percentiles = None if catalogue is None else percentiles_of(catalogue)
    results = _results(queries, answers, items, percentiles)
    if sheet:
        _draw_sheet(results, sheet)
    if as_json:
        say_json(results)
    else:
        _say_results(results, at_least)
        if sheet:
            say(f"drawn to {sheet}")


def load_model(index: Path, made_by: Path, digest: str, model: Path | None) -> "Hasher":
    """Load the model whose codes an index holds: from where it was when they were made, or from `model`."""
    from dmuh.collection import Collection
    from dmuh.encoder import Hasher
    from dmuh.hashes import HashModel, hash_name

    if hash_name(digest) is not None:
        if model is not None:
            raise ConfigError(f"{index} holds hashes of another program, which have no model: leave out --model")
        stand_in = HashModel.of(Collection(index))
        assert stand_in is not None, "its digest says so"
        return stand_in
    if model is None and not made_by.exists():
        raise RunError(f"{made_by}, the model of {index}, does not exist: if it moved, say where it is by --model")
    hasher = Hasher.load(model or made_by)
    if hasher.digest != digest:
        other = f"{index} was made by another model than {model or made_by}"
        raise DataError(f"{other}: give the right one by --model, or index the images again")
    return hasher


def _results(
    queries: "Queries",
    answers: "list[Answers]",
    items: "dict[int, Item]",
    percentiles: list[float] | None,
) -> list[dict[str, Any]]:
    """Return what was found for each query: its path, its uncertainty, and its matches, the nearest first."""
    from dmuh.codes import less_certain_than

    unsure, of_bits = queries.codes.image_uncertainty, queries.codes.uncertainty
    return [
        {
            "query": name,
            "n_bits": queries.codes.n_bits,
            "unsure_bits": None if of_bits is None else round(float(of_bits[row].sum()), 4),
            "uncertainty": None if unsure is None else round(float(unsure[row]), 6),
            "less_certain_than": (
                None if unsure is None or percentiles is None else less_certain_than(float(unsure[row]), percentiles)
            ),
            "best_match": None if (best := answers[row].best) is None else round(best, 4),
            "matches": [_match(answer, items[answer.id]) for answer in answers[row].found],
        }
        for row, name in enumerate(queries.names)
    ]


def _match(answer: "Answer", item: "Item") -> dict[str, Any]:
    """Return one match: its distances, what they mean, and what is known of the image."""
    from dmuh.encoder.matching import likely

    distance = answer.distance if isinstance(answer.distance, int) else round(answer.distance, 4)
    return {
        "distance": distance,
        "hamming": answer.hamming,
        "match": None if answer.match is None else round(answer.match, 4),
        "likely": None if answer.match is None else likely(answer.match),
        "identical": answer.identical,
        **vars(item),
    }


def _say_results(results: list[dict[str, Any]], at_least: float | None) -> None:
    """Print a table for each query."""
    from dmuh.encoder.matching import turning_over
    from dmuh.index.soft import distance_text

    for result in results:
        note = "" if result["unsure_bits"] is None else turning_over(result["unsure_bits"], result["n_bits"])
        if result["less_certain_than"] is not None:
            note += f"; less sure than {result['less_certain_than']}% of the collection"
        rows = [
            {
                "distance": distance_text(match["distance"]),
                "match": _words(match),
                "labels": ";".join(match["labels"]),
                "image": match["path"],
            }
            for match in result["matches"]
        ]
        empty = "no image is near"
        if at_least is not None and result["best_match"] is not None:
            best = f"{result['best_match']:.2f}"
            empty = f"nothing close enough: the best answer shares a label with a probability of {best}"
        say_table(f"{result['query']}{f' ({note})' if note else ''}", rows, empty=empty)


def _words(match: dict[str, Any]) -> str:
    """Return what a match is called: the same image, or how likely it shares a label with the query, if it is known."""
    return "same image" if match["identical"] else match["likely"] or ""


def _caption(distance: str, words: str) -> str:
    """Return the line under a picture; without words it says what the number is."""
    return f"{distance}, {words}" if words else f"distance {distance}"


def _draw_sheet(results: list[dict[str, Any]], file: Path) -> None:
    """Draw each query and its matches as a row; say if images are not where they were indexed."""
    from dmuh.catalogue.paths import displayed
    from dmuh.files import written_whole
    from dmuh.index.soft import distance_text
    from dmuh.report.thumbnails import Tile, contact_sheet

    rows = [
        [
            Tile(result["query"], "query", displayed(Path(result["query"]).name)),
            *(
                Tile(m["path"], _caption(distance_text(m["distance"]), _words(m)), displayed(";".join(m["labels"])))
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
