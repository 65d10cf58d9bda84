"""Codes that `dmuh index` hands over to other engines."""

from pathlib import Path
from typing import Annotated

import typer

from dmuh.cli.console import say, say_json

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
