"""Tables that `dmuh index` makes an index of: codes that were handed over before, and hashes of other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer

from dmuh.cli.encode import refuse_to_replace
from dmuh.cli.options import DatasetOptions, OptionGroup
from dmuh.errors import ConfigError

_HASHES = "Hashes of another program"
_TABLES = (".parquet", ".csv", ".tsv")


@dataclass(frozen=True)
class HashOptions(OptionGroup):
    """What the hashes are called, and how they are written."""

    hash: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_HASHES,
            help="Instead: index the hashes in RUN, a .csv or .parquet file; what they are, such as phash or pdq.",
        ),
    ] = None
    hash_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", rich_help_panel=_HASHES, help="Column with the hashes; if not given NAME, or hash."
        ),
    ] = None
    hash_integers: Annotated[
        bool | None,
        typer.Option(
            "--hash-integers",
            metavar="",
            rich_help_panel=_HASHES,
            help="They are whole numbers of 64 bits, not hexadecimal digits.",
        ),
    ] = None


def is_table(source: Path, hashes: HashOptions) -> bool:
    """Return whether an index is to be made of a table: one of hashes, or a Parquet file that was handed over."""
    return bool(hashes.given()) or (source.suffix.lower() in _TABLES and source.is_file())


def index_table(
    source: Path,
    images: list[Path] | None,
    out: Path | None,
    sure: int | None,
    replace: bool,
    hashes: HashOptions,
    dataset: DatasetOptions,
) -> Path:
    """Make a collection of a table, without its index; return its folder."""
    from dmuh.collection import Collection
    from dmuh.handover import index_again, is_handed_over
    from dmuh.hashes import HashColumns, index_hashes
    from dmuh.images import OnBadImage

    if images or out is None or sure is not None:
        raise ConfigError(
            f"{source} is a table: give it and --out, without images and --sure: dmuh index {source} --out INDEX"
        )
    refuse_to_replace(Collection(out), replace)
    if hashes.hash is None:
        if hashes.given() or not is_handed_over(source):
            raise ConfigError(f"say what the hashes of {source} are by --hash NAME, such as --hash phash")
        if dataset.given():
            raise ConfigError(f"{source} holds codes that dmuh handed over: give it and --out alone")
        index_again(source, Collection(out))
        return out
    bad = dataset.on_bad_image or "fail"
    if dataset.dataset or dataset.path_format or dataset.texts or bad not in ("fail", "skip"):
        raise ConfigError(
            "hashes are read with --path-column, --label-column, --label-separator and --on-bad-image fail or skip"
        )
    columns = HashColumns(
        hashes.hash_column or "", dataset.path_column or "", dataset.label_column or "",
        dataset.label_separator or "", bool(hashes.hash_integers),
    )  # fmt: skip
    index_hashes(source, hashes.hash, out, columns, on_bad_hash=cast(OnBadImage, bad))
    return out
