"""dmuh index --sync, --add and --remove: an index that is there is changed."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dmuh.cli.console import say, say_json, warn
from dmuh.cli.encode import load, load_by, reading_by
from dmuh.cli.options import DatasetOptions, OptionGroup, flag
from dmuh.errors import ConfigError, DataError, RunError

if TYPE_CHECKING:
    from dmuh.collection import Collection
    from dmuh.encoder import Hasher
    from dmuh.encoder.syncing import Synced
    from dmuh.images import Reading


@dataclass(frozen=True)
class ChangeOptions(OptionGroup):
    """How an index that is there is changed."""

    sync: Annotated[
        bool,
        flag("--sync", help="Instead: take up what was added, changed and removed since RUN, an index, was made."),
    ] = False
    add: Annotated[
        bool, flag("--add", help="Instead: add IMAGES to RUN, an index, encoded by its model; --sync follows them too.")
    ] = False
    remove: Annotated[
        bool, flag("--remove", help="Instead: remove IMAGES, files and folders, from RUN, an index; the files stay.")
    ] = False

    def given(self) -> dict[str, Any]:
        """Return the flags that were given, by name."""
        return {name: True for name, value in vars(self).items() if value}


def change_index(
    change: ChangeOptions,
    folder: Path,
    images: list[Path],
    dataset: DatasetOptions,
    workers: int | None,
    as_json: bool,
) -> None:
    """Change the index in a folder in one of the ways."""
    if len(change.given()) > 1:
        raise ConfigError("give one of --sync, --add and --remove")
    if change.sync and (images or dataset.given()):
        raise ConfigError("an index remembers how it was made: give it and --sync, with --workers if need be")
    if not change.sync and not images:
        raise ConfigError(f"say which images: dmuh index {folder} IMAGES --{'add' if change.add else 'remove'}")
    if change.sync:
        bring_up_to_date(folder, workers, as_json)
    elif change.add:
        add_images(folder, images, dataset, workers, as_json)
    else:
        remove_images(folder, images, dataset, as_json)


def bring_up_to_date(folder: Path, workers: int | None, as_json: bool) -> None:
    """Take up what was added to, changed in and removed from the images of an index."""
    from dmuh.collection import Collection
    from dmuh.encoder.captions import keep_captions
    from dmuh.encoder.syncing import sources_to_follow, sync_index

    collection = Collection(folder)
    sources = sources_to_follow(collection)
    data = [load_by([Path(image) for image in source.images], source.options) for source in sources]
    reading = reading_by(sources[0].options.get("on_bad_image"), workers)
    hasher = _model(collection)
    synced = sync_index(collection, hasher, data, reading)
    keep_captions(collection, hasher)
    _say(collection, synced, reading, as_json)


def add_images(folder: Path, images: list[Path], dataset: DatasetOptions, workers: int | None, as_json: bool) -> None:
    """Encode images and add them to an index."""
    from dmuh.collection import Collection, Source
    from dmuh.encoder.captions import keep_captions
    from dmuh.encoder.syncing import add_to_index

    collection = Collection(folder)
    hasher = _model(collection)
    data, reading = load(images, dataset), reading_by(dataset.on_bad_image, workers)
    added = add_to_index(collection, hasher, data, Source.of(images, dataset.given()), reading)
    keep_captions(collection, hasher)
    _say(collection, added, reading, as_json)


def remove_images(folder: Path, images: list[Path], dataset: DatasetOptions, as_json: bool) -> None:
    """Remove images from an index by their paths, or the folders that they lie below."""
    from dmuh.collection import Collection

    if dataset.given():
        raise ConfigError("images are removed by their paths: leave out --dataset and what belongs to it")
    collection = Collection(folder)
    named = [str(path.absolute()) for path in images]
    ids: set[int] = set()
    items = collection.items()
    for path in named:
        below = f"{path.rstrip(os.sep)}{os.sep}"
        own = {id_ for id_, item in items.items() if item.path == path or item.path.startswith(below)}
        if not own:
            raise DataError(f"{folder} has no image {path}, and none below it: nothing is removed")
        ids |= own
    collection.remove(sorted(ids))
    n_images = len(items) - len(ids)
    result = {"index": str(folder), "images": n_images, "added": 0, "changed": 0, "removed": len(ids)}
    say_json(result) if as_json else say(f"{n_images:,} images indexed, {len(ids):,} removed: {folder}")


def _model(collection: "Collection") -> "Hasher":
    """Load the model of an index from where it was."""
    from dmuh.cli.searched import load_model
    from dmuh.hashes import HashModel

    model, digest = collection.model()
    stand_in = HashModel.of(collection)
    if stand_in is not None:
        raise ConfigError(f"{collection.path} holds hashes of another program: index its list anew by --replace")
    if not model.exists():
        raise RunError(f"{model}, the model of {collection.path}, does not exist: put it back, or make the index anew")
    return load_model(collection.path, model, digest, None)


def _say(collection: "Collection", synced: "Synced", reading: "Reading", as_json: bool) -> None:
    if len(reading.bad):
        warn(reading.bad.summary())
    with collection.reading() as catalogue:
        n_images = len(catalogue)
    result = {"index": str(collection.path), "images": n_images, **vars(synced)}
    words = f"{synced.added:,} added, {synced.changed:,} changed, {synced.removed:,} removed"
    say_json(result) if as_json else say(f"{n_images:,} images indexed, {words}: {collection.path}")
