"""CodeSource: the codes of a folder or file, with what is known of their images, some at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.errors import DataError
from dmuh.handover.parquet_table import is_handed_over, open_table, read_table
from dmuh.shards import Shards
from dmuh.shards.sources.parquet import arrow

_TOGETHER = 65_536  # codes that are in memory at a time


@dataclass(frozen=True)
class CodeSource:
    """Codes that are to be handed over, in any number.

    path          where they are
    n             how many
    n_bits        length of a code
    worth         what their levels of sureness stand for (n_bits, 2 or 4), as in Codes; None without levels
    model         the folder of the model that made them, and `model_digest` which one that is; empty if not known
    codes         gives the codes, part by part
    parts         gives them with an item for each, in the same order
    """

    path: Path
    n: int
    n_bits: int
    worth: NDArray[np.float32] | None
    model: str
    model_digest: str
    codes: Callable[[], Iterator[Codes]] = field(repr=False)
    parts: Callable[[], Iterator[tuple[Codes, list[Item]]]] = field(repr=False)

    @property
    def width(self) -> int:
        """Bytes of a packed code."""
        return -(-self.n_bits // 8)

    @property
    def sure(self) -> int:
        """How many bits say how sure each bit is: 0, 1 or 2."""
        return 0 if self.worth is None else int(self.worth.shape[1]).bit_length() - 1


def open_source(path: Path) -> CodeSource:
    """Open a folder that `dmuh index` or `dmuh encode` wrote, a file of codes, or a Parquet file handed over before."""
    if Collection(path).exists:
        return _of_collection(Collection(path))
    if Shards(path).exists:
        return _of_shards(Shards(path))
    if path.suffix == ".safetensors" and path.is_file():
        codes = Codes.load(path, memory_map=True)
        return _of_codes(path, codes, "", "", lambda ids: {id_: Item(id_, "", [], None) for id_ in ids})
    if is_handed_over(path):
        about = open_table(path)
        return CodeSource(
            path, about.n, about.n_bits, about.worth, about.model, about.model_digest,
            lambda: (codes for codes, _ in read_table(path)), lambda: read_table(path),
        )  # fmt: skip
    raise DataError(
        f"{path} holds no codes: give a folder that dmuh index or dmuh encode wrote, a file of codes (.safetensors), "
        "or a Parquet file of dmuh index --to parquet"
    )


def index_again(source: Path, collection: Collection) -> None:
    """Make a collection, without its index, of codes that were handed over as Parquet."""
    opened = open_source(source)
    parts = list(opened.parts())
    levels = np.empty((0, opened.sure, opened.width), np.uint8) if opened.sure else None
    none = Codes(np.empty((0, opened.width), np.uint8), opened.n_bits, levels=levels, worth=opened.worth)
    codes = Codes.concatenated([part for part, _ in parts] or [none])
    items = (item for _, own in parts for item in own)
    collection.write_items(codes, items, Path(opened.model), opened.model_digest)


def _of_collection(collection: Collection) -> CodeSource:
    model, digest = collection.model()
    codes = collection.load_codes()
    return _of_codes(collection.path, codes, str(model), digest, collection.items)


def _of_codes(
    path: Path, codes: Codes, model: str, digest: str, items: Callable[[list[int]], dict[int, Item]]
) -> CodeSource:
    """Return codes whose items are given by their ids."""

    def some() -> Iterator[Codes]:
        return (codes[first : first + _TOGETHER] for first in range(0, len(codes), _TOGETHER))

    def parts() -> Iterator[tuple[Codes, list[Item]]]:
        for part in some():
            ids = part.ids.tolist()
            known = items(ids)
            yield part, [known[id_] for id_ in ids]

    return CodeSource(path, len(codes), codes.n_bits, codes.worth, model, digest, some, parts)


def _of_shards(shards: Shards) -> CodeSource:
    """Return the codes of shards, of which one is in memory at a time."""
    manifest, (_, parquet) = shards.manifest(), arrow()
    next(shards.contents(), None)  # says what is missing
    files = (shards.file(shard, manifest.shards) for shard in range(manifest.shards))
    return CodeSource(
        shards.path,
        sum(parquet.ParquetFile(file).metadata.num_rows for file in files),
        manifest.n_bits,
        None if manifest.worth is None else np.array(manifest.worth, np.float32),
        manifest.model,
        manifest.model_digest,
        lambda: (content.codes for content in shards.contents()),
        lambda: ((content.codes, content.items()) for content in shards.contents()),
    )
