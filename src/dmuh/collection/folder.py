"""Collection: the folder of images that were encoded."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Catalogue, StateFolder, open_index, write_catalogue, write_index
from dmuh.catalogue.index_file import is_index_file, lacks_many
from dmuh.catalogue.paths import as_path, as_text
from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.collection.earlier import convert, is_earlier, is_whole, remove_earlier
from dmuh.collection.items import Item, Source, entry_of, items_of, read_items, stamps_of
from dmuh.collection.notes import INDEX, kind_of, refuse_other_files, refuse_to_lose
from dmuh.collection.paths import Places, common_root, note_elsewhere
from dmuh.datasets import Dataset
from dmuh.errors import DataError, InputError, RunError
from dmuh.files import clear_torn, locked
from dmuh.index import HammingIndex


@dataclass(frozen=True)
class Collection:
    """A collection's folder.

    >>> collection = dmuh.Collection(index_folder)  # that dmuh index wrote
    >>> matches = collection.load_index().search(collection.load_codes()[:1], k=3)
    >>> [item.labels for item in collection.items(matches.ids[0].tolist()).values()]
    [[...], [...], [...]]
    """

    path: Path

    @property
    def catalogue_file(self) -> Path:
        """The catalogue, an SQLite file.

        >>> dmuh.Collection(index_folder).catalogue_file.name
        'catalogue.sqlite'
        """
        return StateFolder(self.path).catalogue_file

    @property
    def index_file(self) -> Path:
        """The index.

        >>> dmuh.Collection(index_folder).index_file.name
        'index.safetensors'
        """
        return self.path / "index.safetensors"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a collection.

        >>> dmuh.Collection(index_folder).exists, dmuh.Collection(photos).exists
        (True, False)
        """
        return is_earlier(self.path) or kind_of(self.catalogue_file) == INDEX

    @property
    def has_index(self) -> bool:
        """Whether the folder holds an index; one whose making was interrupted is none.

        >>> dmuh.Collection(folder / "nothing").has_index
        False
        """
        whole = is_whole(self.path) if is_earlier(self.path) else self.exists
        return whole and self.index_file.is_file()

    def write(
        self,
        codes: Codes,
        dataset: Dataset,
        model: Path,
        model_digest: str,
        *,
        source: Source | None = None,
        files: NDArray[np.int64] | None = None,
    ) -> None:
        """Write the codes of a data set's images, whose ids are their positions there.

        source, files  where the images came from, and size and time of change of each of the data set (N, 2), for
                       `dmuh index --sync`

        >>> hasher, photo_set = dmuh.Hasher.load(run), dmuh.load_dataset("folder", photos)
        >>> collection = dmuh.Collection(folder / "index")
        >>> collection.write(hasher.encode(photo_set), photo_set, run, hasher.digest)
        >>> collection.build_index()
        HammingIndex(20 codes of 20 bits)
        """
        items = items_of(codes, dataset, codes.ids.tolist())
        root = common_root(item.path for item in items)
        stamps = None if files is None else stamps_of(files[codes.ids])
        self.write_parts([(codes, items)], root, model, model_digest, source=source, stamps=stamps)

    def write_items(self, codes: Codes, items: Iterable[Item], model: Path, model_digest: str) -> None:
        """Write codes and what is known of each image, by its id.

        >>> source, collection = dmuh.Collection(index_folder), dmuh.Collection(folder / "index")
        >>> collection.write_items(source.load_codes(), source.items().values(), *source.model())
        >>> collection.items() == source.items()
        True
        """
        known = {item.id: item for item in items}
        if not known.keys() >= set(codes.ids.tolist()):
            raise InputError("items must have one entry for each code, but some codes have none")
        listed = [known[id_] for id_ in codes.ids.tolist()]
        self.write_parts([(codes, listed)], common_root(item.path for item in listed), model, model_digest)

    def write_parts(
        self,
        parts: Iterable[tuple[Codes, Sequence[Item]]],
        root: str,
        model: Path,
        model_digest: str,
        *,
        source: Source | None = None,
        stamps: Sequence[int | None] | None = None,
    ) -> None:
        """Write codes and items part by part, so that only one part is in memory; at least one.

        root    the folder that all files have in common, empty if some images are no files
        stamps  of the images of the only part, what changes with the file

        >>> source, collection = dmuh.Collection(index_folder), dmuh.Collection(folder / "index")
        >>> codes, items = source.load_codes(), source.items()
        >>> parts = ((codes[n], [items[n]]) for n in range(20))
        >>> collection.write_parts(parts, str(photos), *source.model())
        >>> collection.items() == items
        True
        """
        places = Places(root)
        unsure: list[NDArray[np.float64]] = []

        def rows() -> Iterator[tuple[Codes, list[Any]]]:
            for codes, items in parts:
                own = [None] * len(items) if stamps is None else stamps
                known = [item.uncertainty for item in items if item.uncertainty is not None]
                unsure.append(np.array(known, np.float64))
                yield codes.stored(), [entry_of(item, places, stamp) for item, stamp in zip(items, own, strict=True)]
            notes["percentiles"] = _percentiles_note(np.concatenate(unsure))

        notes = {
            "source": INDEX,
            "model": model_digest,
            "model_path": as_text(model.absolute()),
            "root": as_text(Path(root)) if root else "",
            "sources": json.dumps([vars(source)] if source is not None else []),
        }
        self.refuse_foreign()
        with self._locked():
            self._make_room()
            write_catalogue(self.catalogue_file, rows(), notes)
            remove_earlier(self.path)

    def refuse_foreign(self) -> None:
        """Raise if the folder has files of a collection's names that are not a collection's.

        >>> (folder / "catalogue.sqlite").write_text("of another program") and None
        >>> dmuh.Collection(folder).refuse_foreign()
        Traceback (most recent call last):
        dmuh.errors...Error: ...catalogue.sqlite...
        """
        refuse_other_files(self.path, self.catalogue_file, self.index_file, is_earlier=is_earlier(self.path))

    def add(self, codes: Codes, items: Iterable[Item]) -> list[int]:
        """Add images by their codes, of the same model, and what is known of each, in the same order.

        Returns their ids, which no image had before; those of codes and items do not count.

        >>> source, collection = dmuh.Collection(index_folder), dmuh.Collection(folder / "index")
        >>> codes, items = source.load_codes(), list(source.items().values())
        >>> collection.write_items(codes[:15], items[:15], *source.model())
        >>> collection.add(codes[15:], items[15:])
        [15, 16, 17, 18, 19]
        """
        with self.changing() as catalogue:
            places = Places.of(catalogue, self.path)
            entries = [entry_of(item, places) for item in items]
            with catalogue.transaction():
                note_elsewhere(catalogue, (entry.path for entry in entries))
                ids = catalogue.add(entries, codes.stored())
                catalogue.remember(entry.path for entry in entries)
            return ids

    def remove(self, ids: Iterable[int]) -> None:
        """Remove images by their ids; their files stay, and `dmuh index --sync` does not bring them back.

        >>> source, collection = dmuh.Collection(index_folder), dmuh.Collection(folder / "index")
        >>> collection.write_items(source.load_codes(), source.items().values(), *source.model())
        >>> collection.remove([3, 7])
        >>> len(collection.load_codes())
        18
        """
        with self.changing() as catalogue, catalogue.transaction():
            for id_ in ids:
                if catalogue.remove(int(id_)) is None:
                    raise InputError(f"{self.path} has no image {id_}")

    def build_index(self) -> HammingIndex:
        """Make the index of the collection's codes and write it beside them.

        >>> dmuh.Collection(index_folder).build_index()
        HammingIndex(20 codes of 20 bits)
        """
        with self.changing() as catalogue:
            return self._write_index(catalogue)

    def load_index(self) -> HammingIndex:
        """Open the index: its file, memory-mapped, with what changed since it was written.

        >>> dmuh.Collection(index_folder).load_index()
        HammingIndex(20 codes of 20 bits)
        """
        with self.reading() as catalogue:
            return self.index_of(catalogue)

    def load_codes(self) -> Codes:
        """Read the codes, with their levels of sureness, by id.

        >>> codes = dmuh.Collection(index_folder).load_codes()
        >>> len(codes), codes.sure
        (20, 1)
        """
        with self.reading() as catalogue:
            return catalogue.all_codes()

    def codes_digest(self) -> str:
        """Return what tells these codes from others; it is another one after each change.

        >>> len(dmuh.Collection(index_folder).codes_digest())
        64
        """
        with self.reading() as catalogue:
            epoch, _, changes = catalogue.state.partition(" ")
        return epoch if changes == "0" else hashlib.sha256(f"{epoch} {changes}".encode()).hexdigest()

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights.

        >>> model, digest = dmuh.Collection(index_folder).model()
        >>> model == run, digest == dmuh.Hasher.load(run).digest
        (True, True)
        """
        with self.reading() as catalogue:
            return model_of(catalogue)

    def uncertainty_percentiles(self) -> list[float] | None:
        """Return what 0, 1, …, 100% of the images stay at or below in uncertainty, if that is known.

        They are those of when the index file was written, or the collection.

        >>> len(dmuh.Collection(index_folder).uncertainty_percentiles())
        101
        """
        with self.reading() as catalogue:
            return percentiles_of(catalogue)

    def sources(self) -> list[Source]:
        """Return where the images came from; nothing where that is not known, as for those of shards.

        >>> dmuh.Collection(index_folder).sources()
        []
        """
        with self.reading() as catalogue:
            return sources_of(catalogue)

    def items(self, ids: Iterable[int] | None = None) -> dict[int, Item]:
        """Return items by id, in ascending order: those with these ids, whose rows alone are read, or all.

        >>> item = dmuh.Collection(index_folder).items([3])[3]
        >>> item.path, item.labels
        ('.../ones/03.png', ['ones'])
        """
        with self.reading() as catalogue:
            return read_items(catalogue, self.path, ids)

    @contextmanager
    def reading(self) -> Iterator[Catalogue]:
        """Yield the catalogue to read it, which others may write to meanwhile.

        >>> with dmuh.Collection(index_folder).reading() as catalogue:
        ...     len(catalogue)
        20
        """
        self._present()
        with closing(Catalogue(self.catalogue_file, read_only=True)) as catalogue:
            yield catalogue

    @contextmanager
    def changing(self) -> Iterator[Catalogue]:
        """Yield the catalogue to change it, as one process at a time may; the index file follows many changes.

        >>> with dmuh.Collection(index_folder).changing() as catalogue:
        ...     catalogue.labels()
        {'ones': 10, 'zeros': 10}
        """
        self._present()
        with self._locked(), closing(Catalogue(self.catalogue_file)) as catalogue:
            yield catalogue
            if self.index_file.is_file() and lacks_many(catalogue, self.index_file):
                self._write_index(catalogue)

    def index_of(self, catalogue: Catalogue) -> HammingIndex:
        """Return the index, by the catalogue of this collection that is open.

        >>> collection = dmuh.Collection(index_folder)
        >>> with collection.reading() as catalogue:
        ...     collection.index_of(catalogue)
        HammingIndex(20 codes of 20 bits)
        """
        if not self.index_file.is_file():
            raise DataError(f"{self.path} holds codes but no index: make it by dmuh index {self.path}")
        return open_index(catalogue, self.index_file).index

    def _write_index(self, catalogue: Catalogue) -> HammingIndex:
        if self.index_file.exists() and not is_index_file(self.index_file):
            raise DataError(f"{self.index_file} is not as dmuh writes it: nothing is replaced, so move it away")
        found = open_index(catalogue, self.index_file)
        catalogue.note(percentiles=_percentiles_note(catalogue.uncertainties()))
        write_index(catalogue, self.index_file, found)
        return found.index

    def _present(self) -> None:
        """Raise if there is no collection; convert one of an earlier version."""
        if is_earlier(self.path):
            with self._locked():
                if convert(self.path, self.catalogue_file, self.index_file):
                    with closing(Catalogue(self.catalogue_file)) as catalogue:
                        self._write_index(catalogue)
                remove_earlier(self.path)
        if not self.exists:
            raise DataError(f"{self.path} holds no encoded images: make it by dmuh index RUN IMAGES --out {self.path}")

    def _make_room(self) -> None:
        """Raise if a catalogue may not be written here: for other files, or for what would be lost with the old one."""
        self.refuse_foreign()
        clear_torn(self.path, self.catalogue_file.name)
        if is_earlier(self.path) and is_whole(self.path):
            convert(self.path, self.catalogue_file, self.index_file)
        if self.catalogue_file.exists():
            with closing(Catalogue(self.catalogue_file, 0)) as catalogue:  # whose log is gone afterwards
                refuse_to_lose(catalogue, self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        def busy() -> None:
            raise RunError(f"another process serves or changes {self.path}: end it, or wait for it, and try again")

        with locked(StateFolder(self.path).lock, busy):
            yield


def model_of(catalogue: Catalogue) -> tuple[Path, str]:
    """Return the run folder that made a collection's codes, and the digest of its weights."""
    return as_path(catalogue.about("model_path") or ""), catalogue.about("model") or ""


def percentiles_of(catalogue: Catalogue) -> list[float] | None:
    """Return the percentiles of the images' uncertainty that a collection's catalogue has, if it is known."""
    found: list[float] | None = json.loads(catalogue.about("percentiles") or "null")
    return found


def sources_of(catalogue: Catalogue) -> list[Source]:
    """Return where a collection's images came from."""
    found: list[Mapping[str, Any]] = json.loads(catalogue.about("sources") or "[]")
    return [Source(**source) for source in found]


def _percentiles_note(uncertainty: NDArray[np.float64]) -> str:
    return json.dumps(uncertainty_percentiles(uncertainty))
