"""dmuh index."""

from pathlib import Path
from typing import Annotated

import typer

from dmuh.cli.changing import ChangeOptions, change_index
from dmuh.cli.console import say, say_json
from dmuh.cli.encode import Replace, encode_to
from dmuh.cli.handover import To, hand_over_to
from dmuh.cli.hashes import HashOptions, index_table, is_table
from dmuh.cli.milvus import fill_milvus
from dmuh.cli.options import DatasetOptions, Engine, Json, Sure, Workers, with_groups
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError


@with_groups
@stoppable()
def index(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a run or of `dmuh export`; or codes that were made before."),
    ],
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IMAGES", help="Image files and folders to index; none if RUN is one of codes."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder of the index; codes are indexed where they are."),
    ] = None,
    dataset: DatasetOptions = DatasetOptions(),  # noqa: B008 (never used: each option has its default)
    sure: Sure = None,
    workers: Workers = None,
    replace: Replace = False,
    change: ChangeOptions = ChangeOptions(),  # noqa: B008
    engine: Engine = None,
    to: To = None,
    hashes: HashOptions = HashOptions(),  # noqa: B008
    as_json: Json = False,
) -> None:
    """Make images searchable: encode them, unless they are codes already, and index their codes.

    Example: dmuh index runs/photos photos --dataset folder --out photos.index

    With --dataset folder or csv the index has the images' labels. Next: dmuh search, dmuh serve. When images were
    added, changed or removed:

    dmuh index photos.index --sync
    """
    if to is not None:
        if images or sure is not None or engine or change.given() or dataset.given() or hashes.given():
            raise ConfigError("codes are handed over as they are: give them and --to, if need be --out and --replace")
        hand_over_to(source, to, out, replace, as_json)
        return
    if change.given():
        if out or sure is not None or replace or engine or hashes.given():
            raise ConfigError("an index remembers how it was made: leave out --out, --sure, --replace and --index")
        change_index(change, source, images or [], dataset, workers, as_json)
        return
    from dmuh.collection import Collection
    from dmuh.shards import Shards

    replaced = out is not None and Collection(out).has_index
    if Collection(source).exists or Shards(source).exists:
        if images or out or sure is not None:
            more = "" if not images else f"; to add images: dmuh index {source} IMAGES --add"
            raise ConfigError(
                f"{source} holds codes, which are indexed in place: leave out images, --out and --sure{more}"
            )
        if engine is None and not Collection(source).exists:
            Shards(source).merge()
        out = source
    elif is_table(source, hashes):
        out = index_table(source, images, out, sure, replace, hashes, dataset)
    elif not images or out is None:
        raise ConfigError("to index images give a run, the images and --out: dmuh index RUN IMAGES --out INDEX")
    else:
        encode_to(out, source, images, dataset, sure, workers, replace)
    built = Collection(out).build_index() if engine is None else fill_milvus(engine, out)
    result = {"index": str(out), "images": len(built), "n_bits": built.n_bits, "replaced": replaced}
    instead = ", in place of the index that was there" if replaced else ""
    say_json(result) if as_json else say(f"{len(built):,} images indexed{instead}: {out}")
