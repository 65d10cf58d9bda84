"""Folders of earlier versions, which are converted when they are opened.

Such a folder had no catalogue but

    codes.safetensors    the codes, with ids, levels of sureness and digests of contents
    items.jsonl          one line per image: id, path, labels, uncertainty, metadata
    lines.safetensors    where each line begins; those of the earliest versions have none
    collection.json      the model, and the checksums of codes and items
    source.safetensors   where the images came from, and size and time of change of each; not for shards
    index.safetensors    the index, if there was one

and a service over it copied all that into a catalogue of its own, by default in the same folder. That catalogue becomes
the collection's, with what was added, removed and decided through it; without one, a new one is written. Only then are
the files removed that it replaces, collection.json last: a conversion that is killed begins again or is finished. The
uncertainties of the first version are no probabilities: they are left out.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.catalogue import Catalogue, StateFolder, write_catalogue
from dmuh.catalogue.paths import as_path, as_text
from dmuh.catalogue.schema import image_checksum, restart
from dmuh.codes import Codes
from dmuh.collection.items import Item, entry_of, stamps_of
from dmuh.collection.notes import INDEX, is_catalogue
from dmuh.collection.paths import Places, common_root
from dmuh.errors import FormatError
from dmuh.files import load_arrays, saved_checksum, saved_kind
from dmuh.files.documents import is_document, read_document

log = logging.getLogger(__name__)

_KIND = "dmuh collection"
_SOURCE, _SOURCE_VERSION = "dmuh source of an index", 1
_ABOUT = "collection.json"
_FILES = ("codes.safetensors", "items.jsonl", "lines.safetensors", "source.safetensors", _ABOUT)


@dataclass(frozen=True)
class Earlier:
    """What a folder of an earlier version has.

    digest   checksum of its codes
    earlier  those that its codes had before it was brought up to date
    sources  where the images came from, as `Source` has it
    stamps   by id, what changes with the file of an image
    """

    codes: Codes
    items: Mapping[int, Item]
    model: str
    model_digest: str
    percentiles: list[float] | None
    digest: str
    earlier: list[str]
    sources: list[dict[str, Any]]
    stamps: Mapping[int, int | None]


def is_earlier(folder: Path) -> bool:
    """Return whether a folder is of an earlier version; files of these names may be another program's."""
    try:
        return is_document(folder / _ABOUT, _KIND)
    except FormatError:
        return saved_kind(folder / _FILES[0]) == "dmuh codes"


def is_whole(folder: Path) -> bool:
    """Return whether a folder of an earlier version was written to its end, or is damaged."""
    try:
        return bool(read_document(folder / _ABOUT, _KIND)["finished"])
    except FormatError:
        return True


def convert(folder: Path, catalogue_file: Path, index_file: Path) -> bool:
    """Have the folder of an earlier version have a catalogue; return whether its index has to be written again.

    The caller holds the lock, and removes the earlier files afterwards.
    """
    if not os.access(folder, os.W_OK):
        raise FormatError(
            f"{folder} is of an earlier dmuh and cannot be written to: have it be writable once, and give dmuh index "
            f"{folder}"
        )
    if is_catalogue(catalogue_file):
        with closing(Catalogue(catalogue_file, 0)) as catalogue:
            source = catalogue.about("source")
        if source == INDEX:  # a conversion that was killed after this
            return index_file.is_file()
    old = read_earlier(folder)
    log.info("%s is of an earlier dmuh: its %s images are put into a catalogue, once", folder, f"{len(old.codes):,}")
    if is_catalogue(catalogue_file) and not _take_over(catalogue_file, old):
        _set_aside(StateFolder(folder))
    if not catalogue_file.exists():
        _write(catalogue_file, old)
    return index_file.is_file()


def remove_earlier(folder: Path) -> None:
    """Remove the files that a catalogue replaced."""
    if is_earlier(folder):
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)


def read_earlier(folder: Path) -> Earlier:
    """Read a folder of an earlier version; one that was altered, or not written to its end, is refused."""
    about = read_document(folder / _ABOUT, _KIND)
    if not about["finished"]:
        raise FormatError(f"{folder} was not written to its end: index the images again")
    codes_file, items_file, source_file = (folder / name for name in (_FILES[0], _FILES[1], _FILES[3]))
    if saved_checksum(codes_file) != about["codes"]:
        raise FormatError(f"{codes_file} does not belong to {folder / _ABOUT}: index the images again")
    content = items_file.read_bytes() if items_file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != about["items"]:
        raise FormatError(f"{items_file} is missing, altered or of another index: index the images again")
    is_first = "version" not in about
    items = [Item(**json.loads(line)) for line in content.splitlines()]
    known = {item.id: replace(item, uncertainty=None) if is_first else item for item in items}
    codes = Codes.load(codes_file, of=about["model_digest"])
    if not known.keys() >= set(codes.ids.tolist()):
        raise FormatError(f"{folder} has codes of images that it does not name: index the images again")
    source = load_arrays(source_file, _SOURCE, _SOURCE_VERSION) if source_file.is_file() else None
    if source is None or source.metadata["codes"] != about["codes"]:
        earlier, sources, stamps = [], [], {}
    else:
        files, said = source.arrays["files"], source.metadata
        earlier, sources = said["earlier"], [{"images": said["images"], "options": said["options"]}]
        stamps = dict(zip(files[:, 0].tolist(), stamps_of(files[:, 1:]), strict=True))
    percentiles = None if is_first else about["uncertainty_percentiles"]
    return Earlier(
        codes.stored(), known, about["model"], about["model_digest"], percentiles, about["codes"], earlier, sources,
        stamps,
    )  # fmt: skip


def _notes(old: Earlier) -> dict[str, str]:
    return {
        "source": INDEX,
        "bits": str(old.codes.n_bits),
        "model": old.model_digest,
        "model_path": as_text(Path(old.model)),
        "sources": json.dumps(old.sources),
        "percentiles": json.dumps(old.percentiles),
        "earlier": json.dumps([*old.earlier, old.digest]),
    }


def _write(file: Path, old: Earlier) -> None:
    """Write a new catalogue."""
    listed = [old.items[id_] for id_ in old.codes.ids.tolist()]
    root = common_root(item.path for item in listed)
    entries = [entry_of(item, Places(root), old.stamps.get(item.id)) for item in listed]
    write_catalogue(
        file, [(old.codes, entries)], _notes(old) | {"root": as_text(Path(root)) if root else ""}, old.digest
    )


def _take_over(file: Path, old: Earlier) -> bool:
    """Make the catalogue of a service over the folder the collection's; return whether it is of this collection."""
    with closing(Catalogue(file, old.codes.n_bits)) as catalogue:
        if catalogue.about("source") not in (old.digest, *old.earlier):
            return False
        files = {item.path.startswith("/") for item in old.items.values()}
        if len(files) == 2:  # some are names, which its paths do not tell from files
            return False
        root = as_path(catalogue.about("root") or "/")
        places = Places(str(root) if True in files else "")
        with catalogue.transaction() as connection:
            catalogue.note(**_notes(old) | {"root": as_text(root) if places.root else ""})
            reconcile(catalogue, old.items, old.codes, places, old.stamps)
            stamps = {places.stored(item.path): old.stamps.get(id_) for id_, item in old.items.items()}
            for row in list(catalogue.images()):
                stamp = stamps.get(os.fsdecode(row.path))
                if not row.added and stamp != row.stamp:
                    checksum = image_checksum(*row._replace(stamp=stamp))
                    connection.execute(
                        "UPDATE images SET stamp = ?, checksum = ? WHERE id = ?", (stamp, checksum, row.id)
                    )
            # what was changed through the service was not in the codes by which others know this collection
            same = np.array_equal(np.sort(old.codes.ids), catalogue.ids())
            restart(connection, old.digest if same else None)
    return True


def reconcile(
    catalogue: Catalogue, items: Mapping[int, Item], codes: Codes, places: Places, stamps: Mapping[int, int | None]
) -> None:
    """Have a catalogue list these images, in the transaction that is open, but for those that were removed from it.

    What was added through a service stays. New images get ids of the catalogue's own, where theirs are taken.
    """
    forgotten = catalogue.forgotten()
    contents = [None] * len(codes) if codes.contents is None else codes.contents.tolist()
    paths = {id_: places.stored(items[id_].path) for id_ in codes.ids.tolist()}
    now = {(paths[id_], content): row for row, (id_, content) in enumerate(zip(paths, contents, strict=True))}
    listed = {
        (os.fsdecode(row.path), row.contents): row.id
        for row in catalogue.rows(id_ for id_, _ in catalogue.files().values())
    }
    for known in listed.keys() - now.keys():
        catalogue.remove(listed[known], forget=False)
    new = [row for key, row in now.items() if key not in listed and key[0] not in forgotten]
    ids = [int(codes.ids[row]) for row in new]
    entries = [entry_of(items[id_], places, stamps.get(id_)) for id_ in ids]
    catalogue.add(entries, codes[np.array(new, np.int64)])


def _set_aside(folder: StateFolder) -> None:
    """Move the catalogue of a service over other images away, with the files that were added to it."""
    aside = next(path for n in range(1, 10_000) if not (path := folder.path / f"before-{n}").exists())
    aside.mkdir()
    log.warning("%s is of a service over other images than %s has: it is kept in %s", folder.catalogue_file,
                folder.path, aside)  # fmt: skip
    for file in [*folder.path.glob(f"{folder.catalogue_file.name}*"), folder.added, folder.set_aside]:
        if file.exists():
            file.rename(aside / file.name)
