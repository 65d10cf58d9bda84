"""A service that keeps its own catalogue, in a folder of its own, follows that of an index."""

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dmuh.catalogue import Catalogue
from dmuh.catalogue.from_folder import FROM_FOLDER
from dmuh.catalogue.paths import as_path
from dmuh.catalogue.state_folder import Model
from dmuh.collection.earlier import reconcile
from dmuh.collection.folder import Collection
from dmuh.collection.items import entry_of, item_of, read_items
from dmuh.collection.paths import Places, check_links, note_elsewhere
from dmuh.errors import ConfigError, DataError

log = logging.getLogger(__name__)

_MANY = 65_536  # images that are copied together
_NOTES = ("root", "elsewhere", "sources")  # that say where images lie, and came from


def serve_collection(catalogue: Catalogue, collection: Collection, hasher: Model, sure: int | None = None) -> Path:
    """Have the catalogue of a service have a collection's images; return the folder that they lie below.

    As a rule it is the collection's own, and nothing is to be done. One in another folder gets a copy, once, and then
    what changed in the collection since. Where `sure` bits are asked for that say how sure each bit is, the collection
    must have as many.
    """
    if collection.exists and catalogue.file.samefile(collection.catalogue_file):
        _check(collection, catalogue, hasher, sure)
    else:
        with collection.reading() as own:
            _check(collection, own, hasher, sure)
            _follow(catalogue, collection, own)
    root = as_path(catalogue.about("root") or "/")
    check_links(catalogue, root, collection.path)
    return root


def _check(collection: Collection, own: Catalogue, hasher: Model, sure: int | None) -> None:
    if own.about("model") != hasher.digest:
        raise DataError(f"{collection.path} was made by another model than the one given: index the images again")
    if sure not in (None, own.sure):
        raise ConfigError(
            f"{collection.path} has {own.sure} sure bits per bit, got --sure {sure}: index the images again"
        )


def _follow(catalogue: Catalogue, collection: Collection, own: Catalogue) -> None:
    """Copy all images of an index, or take up what changed since they were copied."""
    source = catalogue.about("source")
    if source is None:
        log.info("%s images are taken over into %s", f"{len(own):,}", catalogue.file)
    elif source == FROM_FOLDER:
        raise DataError(f"{catalogue.file} is of a folder, not of an index: give --images, or another --state")
    elif source not in (own.about("epoch"), *json.loads(own.about("earlier") or "[]")):
        raise DataError(
            f"{collection.path} was indexed again since it was served, or {catalogue.file} is of another index: give "
            "another --state, for what was added and deleted through the service belongs to the other one"
        )
    elif catalogue.about("state") == own.state:
        return
    with own.snapshot(), catalogue.transaction():
        if source is None:
            _copy(catalogue, own, collection.path)
        else:
            items = read_items(own, collection.path)
            reconcile(catalogue, items, own.all_codes(), Places.of(own, collection.path), {})
        notes = {key: own.about(key) for key in _NOTES}
        catalogue.note(source=own.about("epoch") or "", state=own.state, **{k: v for k, v in notes.items() if v})
        note_elsewhere(catalogue, catalogue.files())


def _copy(catalogue: Catalogue, own: Catalogue, folder: Path) -> None:
    """Copy all images, under their ids."""
    rows, places = own.images(), Places.of(own, folder)
    while many := list(islice(rows, _MANY)):
        entries = [replace(entry_of(item_of(row, places), places), id=row.id) for row in many]
        catalogue.add(entries, own.some_codes(row.id for row in many))
