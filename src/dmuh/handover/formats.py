"""hand_over: codes, levels of sureness and ids in the format of another engine, whole or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmuh.errors import ConfigError, DataError, unknown
from dmuh.files import written_whole
from dmuh.handover import faiss_file, numpy_file, parquet_table, pgvector
from dmuh.handover.sources import CodeSource, open_source

_OURS = {".index", ".codes", ".safetensors", ".parquet"}  # endings of names that are left out in those of new files


@dataclass(frozen=True)
class Format:
    """A format: how its files' names end, how the files begin, and what writes one that shall be called as is said."""

    suffix: str
    magic: bytes
    write: Callable[[CodeSource, Path, str], None]


FORMATS = {
    "faiss": Format(".faiss", faiss_file.MAGIC, faiss_file.write_faiss),
    "pgvector": Format(".sql", pgvector.MAGIC, pgvector.write_pgvector),
    "parquet": Format(".parquet", parquet_table.MAGIC, parquet_table.write_parquet),
    "numpy": Format(".npz", numpy_file.MAGIC, numpy_file.write_numpy),
}


@dataclass(frozen=True)
class HandedOver:
    """What was written: the file, how many codes, their length, and whether it took the place of another."""

    file: Path
    n: int
    n_bits: int
    replaced: bool


def hand_over(codes: str | Path, to: str, out: str | Path | None = None, *, replace: bool = False) -> HandedOver:
    """Write codes where another engine reads them, with their ids and, where it has a place for them, all else.

    codes    a folder that `dmuh index` or `dmuh encode` wrote, or a file that `Codes.save` wrote
    to       faiss (a binary index), pgvector (an SQL script), parquet or numpy (an .npz file)
    out      the file to write; if not given, beside `codes` and named after it
    replace  whether a file that is there is replaced; only one of the same format is

    Some of the codes are in memory at a time, so there may be more of them than memory.

    >>> written = dmuh.hand_over(index_folder, "numpy", folder / "photos.npz")
    >>> written.file.name, written.n, written.n_bits
    ('photos.npz', 20, 20)
    >>> arrays = np.load(written.file)
    >>> arrays["codes"].shape, arrays["levels"].shape, arrays["ids"][:3]
    ((20, 3), (20, 1, 3), array([0, 1, 2]))
    """
    if to not in FORMATS:
        raise ConfigError(unknown("format", to, FORMATS))
    chosen, path = FORMATS[to], Path(codes)
    source = open_source(path)
    file = default_file(path, to) if out is None else Path(out)
    replaced = file.exists()
    if replaced and not replace:
        raise _there_already(file)
    if replaced and not _is_of(file, chosen):
        raise DataError(f"{file} is no file that --to {to} writes: it is not replaced, so give another --out")
    try:
        with written_whole(file, replace=replace) as temporary:
            chosen.write(source, temporary, file.stem)
    except FileExistsError as error:  # it came while this one was written
        raise _there_already(file) from error
    return HandedOver(file, source.n, source.n_bits, replaced)


def default_file(codes: Path, to: str) -> Path:
    """Return the file that is written where none is named: beside the codes."""
    name = codes.name or codes.absolute().name
    stem = Path(name).stem if Path(name).suffix in _OURS else name
    return codes.parent / f"{stem}{FORMATS[to].suffix}"


def _is_of(file: Path, chosen: Format) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        start = opened.read(len(chosen.magic))
    return start in (chosen.magic, b"")


def _there_already(file: Path) -> DataError:
    return DataError(f"{file} is there already: replace it by --replace, or give another --out")
