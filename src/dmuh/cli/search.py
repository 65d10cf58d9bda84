"""dmuh search."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dmuh.cli.console import say, say_json, warn
from dmuh.cli.encode import reading_by
from dmuh.cli.options import Engine, Json, OnBadImage, OptionGroup, flag, with_groups
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, needs_torch

if TYPE_CHECKING:
    from dmuh.cli.answers import Asked
    from dmuh.cli.queries import Queries
    from dmuh.cli.searched import Searched
    from dmuh.images import Reading
    from dmuh.index.soft import Ranking


@dataclass(frozen=True)
class QueryOptions(OptionGroup):
    """What is searched with, where it is no image."""

    ids: Annotated[
        list[int] | None,
        typer.Option("--id", metavar="ID", help="Instead: images of the index as queries, by id; may be repeated."),
    ] = None
    hexes: Annotated[
        list[str] | None,
        typer.Option("--code", metavar="HEX", help="Instead: codes, in hexadecimal digits; may be repeated."),
    ] = None
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text", metavar="TEXT", help="Instead: what the images show, where the model has texts; may be repeated."
        ),
    ] = None

    def check(self, images: list[Path] | None) -> None:
        """Raise unless one kind of query is given."""
        if sum(map(bool, (images, self.ids, self.hexes, self.texts))) != 1:
            raise ConfigError("give query images, or ids of images by --id, or codes by --code, or sentences by --text")

    def queries(self, searched: "Searched", images: list[Path], reading: "Reading") -> "Queries":
        """Return what to search with: what these options name, else images."""
        from dmuh.cli.queries import of_codes, of_ids, of_images, of_texts

        if self.ids:
            return of_ids(searched.stored, searched.items, searched.folder, self.ids)
        if self.texts:
            return of_texts(searched.hasher, self.texts)
        if self.hexes:
            return of_codes(self.hexes, searched.hasher.n_bits)
        found = of_images(searched.hasher, images, reading)
        if len(reading.bad):
            warn(reading.bad.summary())
        return found


@dataclass(frozen=True)
class AnswerOptions(OptionGroup):
    """How many images are found, and in which order."""

    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="How many of the nearest images.")] = 10
    radius: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Instead: all images that differ in at most N bits; with --ranking soft as is expected.",
        ),
    ] = None
    ranking: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Order by the expected number of differing bits: soft (the default); or by the number: hamming.",
        ),
    ] = None
    at_least: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="P", help="Leave out images that share a label with a probability of less than P."
        ),
    ] = None

    def asked(self) -> "Asked":
        """Return what these options ask for."""
        from dmuh.cli.answers import Asked

        return Asked(self.k, self.radius, cast("Ranking | None", self.ranking), self.at_least)


@stoppable()
@with_groups
def search(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder made by `dmuh index`.")],
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IMAGES", help="Query images: files and folders; or a .npy file of vectors."),
    ] = None,
    begin: QueryOptions = QueryOptions(),  # noqa: B008 (never used: each option has its default)
    captions: Annotated[
        bool,
        flag("--captions", help="Answer with the nearest sentences about images of the index, made with --texts."),
    ] = False,
    wanted: AnswerOptions = AnswerOptions(),  # noqa: B008 (never used either)
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
    from dmuh.cli.captions import say_captions
    from dmuh.cli.found import draw_sheet, say_results
    from dmuh.cli.searched import open_searched

    asked = wanted.asked()
    begin.check(images)
    if captions and (begin.texts or engine or sheet):
        raise ConfigError("--captions answers images in words: leave out --text, --index and --sheet")
    if sheet and sheet.suffix.lower() != ".png":
        raise ConfigError(f"--sheet must be a .png file, got {sheet}")
    with needs_torch("encoding query images"), open_searched(index_folder, engine, model) as searched:
        queries = begin.queries(searched, images or [], reading_by(on_bad_image))
        results = searched.captions(queries, asked) if captions else searched.images(queries, asked)
    if sheet:
        draw_sheet(results, sheet, of_texts=bool(begin.texts))
    if as_json:
        say_json(results)
    elif captions:
        say_captions(results, asked.at_least)
    else:
        say_results(results, asked.at_least)
        if sheet:
            say(f"drawn to {sheet}")
