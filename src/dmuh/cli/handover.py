"""Codes of `dmuh index` that are handed over to other engines, and those that come from elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from dmuh.cli.console import say, say_json
from dmuh.cli.encode import refuse_to_replace
from dmuh.errors import ConfigError

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="Instead: write the codes of RUN, a folder or file of codes, for another engine: faiss, pgvector, parquet "
        "or numpy. --out names the file.",
    ),
]


def hand_over_to(source: Path, to: str, out: Path | None, replace: bool, as_json: bool) -> None:
    """Write codes in the format of another engine, and say where."""
    from dmuh.handover import hand_over

    written = hand_over(source, to, out, replace=replace)
    result = {
        "file": str(written.file), "format": to, "images": written.n, "n_bits": written.n_bits,
        "replaced": written.replaced,
    }  # fmt: skip
    instead = ", in place of the file that was there" if written.replaced else ""
    say_json(result) if as_json else say(f"{written.n:,} codes of {written.n_bits} bits{instead}: {written.file}")


def is_table(source: Path) -> bool:
    """Return whether codes are given as a table: a Parquet file that was handed over."""
    return source.suffix.lower() == ".parquet" and source.is_file()


def index_table(source: Path, images: list[Path] | None, out: Path | None, replace: bool) -> Path:
    """Make a collection, without its index, of a table of codes; return its folder."""
    from dmuh.collection import Collection
    from dmuh.handover import index_again

    if images or out is None:
        raise ConfigError(f"{source} is a table of codes: give it and --out, as in dmuh index {source} --out INDEX")
    refuse_to_replace(Collection(out), replace)
    index_again(source, Collection(out))
    return out
