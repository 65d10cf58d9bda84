"""dmuh search."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dmuh.cli.console import say, say_json, warn
from dmuh.cli.encode import reading_by
from dmuh.cli.milvus import open_milvus
from dmuh.cli.options import Engine, Json, OnBadImage, flag
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, DataError, RunError, needs_torch

if TYPE_CHECKING:
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
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text", metavar="TEXT", help="Instead: what the images show, where the model has texts; may be repeated."
        ),
    ] = None,
    captions: Annotated[
        bool,
        flag("--captions", help="Answer with the nearest sentences about images of the index, made with --texts."),
    ] = False,
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
    """Find the images of an index that are nearest to query images, or to what a sentence says.

    Example: dmuh search photos.index query.jpg --sheet found.png

    Or to one of the index: dmuh search photos.index --id 17

    Or by words, with a model that was trained with texts: dmuh search photos.index --text "two dogs on a beach"
    """
    from dmuh.cli.answers import Asked, Stored, find
    from dmuh.cli.captions import in_words, say_captions
    from dmuh.cli.found import draw_sheet, results_of, say_results
    from dmuh.cli.queries import of_codes, of_ids, of_images, of_texts
    from dmuh.collection import Collection
    from dmuh.collection.folder import model_of, percentiles_of
    from dmuh.collection.items import read_items
    from dmuh.encoder.captions import read_captions
    from dmuh.shards import Shards

    if sum(map(bool, (images, ids, hexes, texts))) != 1:
        raise ConfigError("give query images, or ids of images by --id, or codes by --code, or sentences by --text")

    asked = Asked(k, radius, cast("Ranking | None", ranking), at_least)
    if captions and (texts or engine or sheet):
        raise ConfigError("--captions answers images in words: leave out --text, --index and --sheet")
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
        reading = reading_by(on_bad_image)
        if ids:
            queries = of_ids(stored, items_of, index_folder, ids)
        elif texts:
            queries = of_texts(hasher, texts)
        else:
            queries = of_codes(hexes, hasher.n_bits) if hexes else of_images(hasher, images or [], reading)
        if len(reading.bad):
            warn(reading.bad.summary())
        if captions:
            assert catalogue is not None, "no engine was given"
            said = read_captions(whole, catalogue, hasher)
            asked.check(said.by)
            results = in_words(queries, said, asked)
            say_json(results) if as_json else say_captions(results, at_least)
            return
        calibration = queries.calibration or hasher.calibration
        asked.check(calibration)
        more = replace(asked, k=k + bool(ids))  # an image of the index finds itself too, which is left out
        found = find(index, stored, queries.codes, more, calibration)
        answers = queries.without_themselves(found, k if radius is None else None)
        items = items_of({answer.id for one in answers for answer in one.found})
        percentiles = None if catalogue is None else percentiles_of(catalogue)
    results = results_of(queries, answers, items, percentiles)
    if sheet:
        draw_sheet(results, sheet, of_texts=bool(texts))
    if as_json:
        say_json(results)
    else:
        say_results(results, at_least)
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
