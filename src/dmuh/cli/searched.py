"""What `dmuh search` searches: the index of a folder, in memory or in Milvus, and the model that made its codes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmuh.cli.answers import Asked, Stored, find
from dmuh.cli.captions import in_words
from dmuh.cli.found import results_of
from dmuh.cli.milvus import open_milvus
from dmuh.cli.queries import Queries
from dmuh.collection import Collection, Item
from dmuh.collection.folder import model_of, percentiles_of
from dmuh.collection.items import read_items
from dmuh.encoder import Hasher
from dmuh.errors import ConfigError, DataError, RunError
from dmuh.hashes import HashModel, hash_name
from dmuh.shards import Shards

if TYPE_CHECKING:
    from dmuh.catalogue import Catalogue
    from dmuh.index import HammingIndex, MilvusIndex


@dataclass(frozen=True)
class Searched:
    """An index that was opened, the codes and images behind it, and the model that made them.

    items      gives the images with some ids
    catalogue  what is known of the images; None where shards are searched by Milvus
    """

    folder: Path
    index: "HammingIndex | MilvusIndex"
    stored: Stored
    items: Callable[[Iterable[int]], dict[int, Item]]
    hasher: Hasher
    catalogue: "Catalogue | None"

    def images(self, queries: Queries, asked: Asked) -> list[dict[str, Any]]:
        """Return the images that are found for each query."""
        calibration = queries.calibration or self.hasher.calibration
        asked.check(calibration)
        more = replace(asked, k=asked.k + bool(queries.own))  # an image of the index finds itself too, and is left out
        found = find(self.index, self.stored, queries.codes, more, calibration)
        answers = queries.without_themselves(found, asked.k if asked.radius is None else None)
        items = self.items({answer.id for one in answers for answer in one.found})
        percentiles = None if self.catalogue is None else percentiles_of(self.catalogue)
        return results_of(queries, answers, items, percentiles)

    def captions(self, queries: Queries, asked: Asked) -> list[dict[str, Any]]:
        """Return the sentences about images of the index that are found for each query."""
        from dmuh.encoder.captions import read_captions

        assert self.catalogue is not None, "Milvus keeps no sentences"
        said = read_captions(self.catalogue, self.hasher)
        asked.check(said.by)
        return in_words(queries, said, asked)


@contextmanager
def open_searched(folder: Path, engine: str | None, model: Path | None) -> Iterator[Searched]:
    """Open the index in a folder, or the copy of it in Milvus; the model is found by it, or given."""
    whole, shards = Collection(folder), Shards(folder)
    is_whole = whole.exists or not (engine and shards.exists)
    with ExitStack() as opened:
        catalogue = opened.enter_context(whole.reading()) if is_whole else None
        if engine is None:
            assert catalogue is not None, "without Milvus, shards are not searched"
            index: HammingIndex | MilvusIndex = whole.index_of(catalogue)
            stored = Stored.in_catalogue(catalogue)
        else:
            index = open_milvus(engine, folder)
            stored = Stored(index.sure, index.codes, index.identical)
        items = shards.items if catalogue is None else partial(read_items, catalogue, folder)
        hasher = load_model(folder, *(shards.model() if catalogue is None else model_of(catalogue)), model)
        yield Searched(folder, index, stored, items, hasher, catalogue)


def load_model(index: Path, made_by: Path, digest: str, model: Path | None) -> Hasher:
    """Load the model whose codes an index holds: from where it was when they were made, or from `model`."""
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
