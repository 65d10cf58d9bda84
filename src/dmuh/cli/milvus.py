"""The codes of a folder in Milvus, which searches them in place of this process."""

from pathlib import Path
from typing import TYPE_CHECKING

from dmuh.cli.console import counting_bar, warn

if TYPE_CHECKING:
    from dmuh.index import MilvusIndex

_TOGETHER = 100_000  # codes that are given to Milvus in one call


def open_milvus(address: str, folder: Path) -> "MilvusIndex":
    """Open the index of a folder's codes at an address such as milvus:codes.db."""
    from dmuh.collection import Collection
    from dmuh.index import MilvusIndex
    from dmuh.shards import Shards

    shards = Shards(folder)
    return MilvusIndex(address, of=shards.manifest().digest() if shards.exists else Collection(folder).codes_digest())


def fill_milvus(address: str, folder: Path) -> "MilvusIndex":
    """Give Milvus the codes of a folder that it does not have yet, with their labels; shards one after the other."""
    from dmuh.collection import Collection
    from dmuh.shards import Shards

    opened = open_milvus(address, folder)
    with counting_bar("loading", None) as progress:
        if Shards(folder).exists:
            Shards(folder).fill(opened, progress)
        else:
            codes, items = Collection(folder).load_codes(), Collection(folder).items()
            for first in range(0, len(codes), _TOGETHER):
                part = codes[first : first + _TOGETHER]
                opened.add_missing(part, [items[id_].labels for id_ in part.ids.tolist()])
                progress(len(part))
    if not opened.settle():
        warn("Milvus has all codes, and still indexes them: until that is done, searches take longer")
    return opened
