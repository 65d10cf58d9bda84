"""Images that `dmuh index` indexed, into the catalogue."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from dmuh.catalogue.catalogue import Catalogue, Entry
from dmuh.catalogue.from_folder import FROM_FOLDER
from dmuh.catalogue.paths import as_path, as_text, displayed, locate
from dmuh.collection import Collection, Item
from dmuh.encoder import Hasher
from dmuh.encoder.syncing import IndexSource
from dmuh.errors import ConfigError, DataError

log = logging.getLogger(__name__)


def import_collection(catalogue: Catalogue, collection: Collection, hasher: Hasher, sure: int | None = None) -> Path:
    """Copy a collection's images into the catalogue, once; return the folder that all of them lie below.

    Where `sure` bits are asked for that say how sure each bit is, the collection must have as many.
    """
    _, digest = collection.model()
    if digest != hasher.digest:
        raise DataError(f"{collection.path} was made by another model than the one given: index the images again")
    checksum, source = collection.codes_digest(), catalogue.about("source")
    if source is None:
        _copy(catalogue, collection, checksum, sure)
    elif source == FROM_FOLDER:
        raise DataError(f"{catalogue.file} is of a folder, not of an index: give --images, or another --state")
    elif source != checksum and not _take_up(catalogue, collection, source):
        raise DataError(
            f"{collection.path} was indexed again since it was served, or {catalogue.file} is of another index: give "
            "another --state, for what was added and deleted through the service belongs to the other one"
        )
    _check_sure(collection, sure, catalogue.sure)
    return as_path(catalogue.about("root") or "/")


def _take_up(catalogue: Catalogue, collection: Collection, source: str) -> bool:
    """Take up what `dmuh index --sync` changed since the collection was copied; return whether that can be done."""
    try:
        earlier = IndexSource.load(collection).earlier
    except DataError:
        return False
    items = collection.items()
    root, paths = locate(collection, items)
    if source not in earlier or as_text(root) != catalogue.about("root"):
        return False
    codes, forgotten = collection.load_codes(), catalogue.forgotten()
    contents = [None] * len(codes) if codes.contents is None else codes.contents.tolist()
    now = {(paths[id_], content) for id_, content in zip(codes.ids.tolist(), contents, strict=True) if id_ in paths}
    listed = {
        (os.fsdecode(row.path), row.contents): row.id
        for row in catalogue.rows(id_ for id_, _ in catalogue.files().values())
    }
    new = [
        row
        for row, (id_, content) in enumerate(zip(codes.ids.tolist(), contents, strict=True))
        if id_ in paths and (paths[id_], content) not in listed and paths[id_] not in forgotten
    ]
    with catalogue.transaction():
        for known in listed.keys() - now:
            catalogue.remove(listed[known], forget=False)
        # under ids of the catalogue's own: those of the index may be those of images that were added here
        entries = [replace(_entry(items[id_], paths[id_]), id=None) for id_ in codes.ids[new].tolist()]
        catalogue.add(entries, codes[new])
        catalogue.note(source=collection.codes_digest())
    return True


def _check_sure(collection: Collection, asked: int | None, has: int | None) -> None:
    if asked not in (None, has):
        raise ConfigError(f"{collection.path} has {has} sure bits per bit, got --sure {asked}: index the images again")


def _copy(catalogue: Catalogue, collection: Collection, checksum: str, sure: int | None) -> None:
    codes, items = collection.load_codes(), collection.items()
    _check_sure(collection, sure, codes.sure)
    if not items.keys() >= set(codes.ids.tolist()):
        raise DataError(f"{collection.path} has codes of images that it does not name: index the images again")
    root, paths = locate(collection, items)
    codes = codes[np.isin(codes.ids, list(paths))]
    log.info("%s images are taken over into %s", f"{len(codes):,}", catalogue.file)
    entries = (_entry(items[id_], paths[id_]) for id_ in codes.ids.tolist())
    with catalogue.transaction():
        catalogue.add(entries, codes)
        catalogue.note(source=checksum, root=as_text(root))


def _entry(item: Item, path: str) -> Entry:
    metadata = {displayed(column): displayed(value) for column, value in item.metadata.items()}
    return Entry(path, [displayed(label) for label in item.labels], metadata, item.id, uncertainty=item.uncertainty)
