"""Collections: images that were encoded, on disk, with what is known of each.

codes.safetensors   the codes, with ids, levels of sureness and digests of contents
items.jsonl         one line per image: id, path, labels, uncertainty (the share of its bits that is expected to turn
                    over), metadata
lines.safetensors   where the line of each id begins in items.jsonl, and a checksum of the line, so that a few lines can
                    be read and checked without all others; collections of earlier versions have none
collection.json     the model that made the codes, the checksums of the codes, items and lines, the percentiles of the
                    images' uncertainty, and the version of all this, if it is not the first
index.safetensors   the search index, once `dmuh index` made it
source.safetensors  where the images came from and when they were changed: see `dmuh.encoder.syncing`

Each file has a checksum and says what it belongs to: one that was altered, or taken from elsewhere, is refused. The
uncertainties of a collection of the first version are no probabilities: they are left out.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.datasets import Dataset
from dmuh.documents import file_digest, read_document, refuse_foreign, write_document
from dmuh.errors import DataError, FormatError
from dmuh.files import load_arrays, save_arrays, saved_checksum, write_text
from dmuh.index import HammingIndex

_KIND, _VERSION = "dmuh collection", 2
_LINES, _LINES_VERSION = "dmuh lines", 1


@dataclass(frozen=True)
class Item:
    """One image of a collection; its uncertainty is the share of its bits that is expected to turn over."""

    id: int
    path: str
    labels: list[str]
    uncertainty: float | None
    metadata: dict[str, str] = field(default_factory=dict)


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
    def codes_file(self) -> Path:
        """The codes.

        >>> dmuh.Collection(index_folder).codes_file.name
        'codes.safetensors'
        """
        return self.path / "codes.safetensors"

    @property
    def index_file(self) -> Path:
        """The index.

        >>> dmuh.Collection(index_folder).index_file.name
        'index.safetensors'
        """
        return self.path / "index.safetensors"

    @property
    def source_file(self) -> Path:
        """Where the images came from.

        >>> dmuh.Collection(index_folder).source_file.name
        'source.safetensors'
        """
        return self.path / "source.safetensors"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a collection.

        >>> dmuh.Collection(index_folder).exists, dmuh.Collection(photos).exists
        (True, False)
        """
        return self._about_file.is_file()

    @property
    def has_index(self) -> bool:
        """Whether the folder holds an index; one whose making was interrupted is none.

        >>> dmuh.Collection(folder / "nothing").has_index
        False
        """
        if not (self.exists and self.index_file.is_file()):
            return False
        try:
            return bool(read_document(self._about_file, _KIND)["finished"])
        except FormatError:
            return True

    def write(self, codes: Codes, dataset: Dataset, model: Path, model_digest: str) -> None:
        """Write the codes of a data set's images, whose ids are their positions there.

        >>> hasher, photo_set = dmuh.Hasher.load(run), dmuh.load_dataset("folder", photos)
        >>> collection = dmuh.Collection(folder / "index")
        >>> collection.write(hasher.encode(photo_set), photo_set, run, hasher.digest)
        >>> collection.build_index()
        HammingIndex(20 codes of 20 bits)
        """
        items = items_of(codes, dataset, codes.ids.tolist())
        self.write_items(codes, items, model, model_digest)

    def write_items(self, codes: Codes, items: Iterable[Item], model: Path, model_digest: str) -> None:
        """Write codes and what is known of each image, in the same order.

        >>> source, collection = dmuh.Collection(index_folder), dmuh.Collection(folder / "index")
        >>> collection.write_items(source.load_codes(), source.items().values(), *source.model())
        >>> collection.items() == source.items()
        True
        """
        self.refuse_foreign()
        known = {item.id: item for item in items}
        # ASCII: a file's name need not be Unicode, and a letter is a byte
        lines = {id_: json.dumps(vars(item)) + "\n" for id_, item in known.items()}
        unsure = [item.uncertainty for item in known.values() if item.uncertainty is not None]
        about = {"version": _VERSION, "model": str(model.absolute()), "model_digest": model_digest}
        write_document(self._about_file, _KIND, about | {"finished": False})
        _kept(codes).save(self.codes_file, of=model_digest)
        write_text(self._items_file, "".join(lines.values()))
        self._write_lines(lines)
        sealed = {
            "codes": saved_checksum(self.codes_file),
            "items": file_digest(self._items_file),
            "lines": saved_checksum(self._lines_file),
            "uncertainty_percentiles": uncertainty_percentiles(unsure),
        }
        write_document(self._about_file, _KIND, about | sealed | {"finished": True})

    def refuse_foreign(self) -> None:
        """Raise if the folder has files of a collection's names that are not a collection's.

        >>> (folder / "items.jsonl").touch()
        >>> dmuh.Collection(folder).refuse_foreign()
        Traceback (most recent call last):
        dmuh.errors...Error: ...items.jsonl...
        """
        names = [
            file.name
            for file in (self.codes_file, self._items_file, self._lines_file, self.index_file, self.source_file)
        ]
        refuse_foreign(self.path, self._about_file.name, _KIND, names)

    def build_index(self) -> HammingIndex:
        """Make the index of the collection's codes and write it beside them.

        >>> dmuh.Collection(index_folder).build_index()
        HammingIndex(20 codes of 20 bits)
        """
        index = HammingIndex().add(self.load_codes())
        index.save(self.index_file, of=self._about()["codes"])
        return index

    def load_index(self) -> HammingIndex:
        """Read the index.

        >>> dmuh.Collection(index_folder).load_index()
        HammingIndex(20 codes of 20 bits)
        """
        codes = self._about()["codes"]
        if not self.index_file.is_file():
            raise DataError(f"{self.path} holds codes but no index: make it by dmuh index {self.path}")
        return HammingIndex.load(self.index_file, of=codes)

    def load_codes(self, *, memory_map: bool = False) -> Codes:
        """Read the codes, with their levels of sureness; with `memory_map` they stay on disk until used.

        >>> codes = dmuh.Collection(index_folder).load_codes()
        >>> len(codes), codes.sure
        (20, 1)
        """
        about = self._about()
        if saved_checksum(self.codes_file) != about["codes"]:
            raise FormatError(f"{self.codes_file} does not belong to {self._about_file}: index the images again")
        return Codes.load(self.codes_file, memory_map=memory_map, of=about["model_digest"])

    def codes_digest(self) -> str:
        """Return what tells these codes from others.

        >>> len(dmuh.Collection(index_folder).codes_digest())
        64
        """
        return str(self._about()["codes"])

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights.

        >>> model, digest = dmuh.Collection(index_folder).model()
        >>> model == run, digest == dmuh.Hasher.load(run).digest
        (True, True)
        """
        about = self._about()
        return Path(about["model"]), about["model_digest"]

    def uncertainty_percentiles(self) -> list[float] | None:
        """Return what 0, 1, …, 100% of the images stay at or below in the share of bits that may turn over, if known.

        >>> len(dmuh.Collection(index_folder).uncertainty_percentiles())
        101
        """
        about = self._about()
        percentiles: list[float] | None = about["uncertainty_percentiles"]
        return None if _is_first(about) else percentiles

    def items(self, ids: Iterable[int] | None = None) -> dict[int, Item]:
        """Return items by id, in the order of the file: those with these ids, whose lines alone are read, or all.

        >>> item = dmuh.Collection(index_folder).items([3])[3]
        >>> item.path, item.labels
        ('.../ones/03.png', ['ones'])
        """
        about = self._about()
        wanted = None if ids is None else set(ids)
        if wanted is not None and "lines" in about:
            lines = self._read_lines(wanted, about["lines"])
        else:
            content = self._items_file.read_bytes() if self._items_file.is_file() else b""
            if hashlib.sha256(content).hexdigest() != about["items"]:
                raise self._altered_items()
            lines = content.splitlines()
        unknown = {"uncertainty": None} if _is_first(about) else {}
        items = (Item(**json.loads(line) | unknown) for line in lines)
        return {item.id: item for item in items if wanted is None or item.id in wanted}

    def _write_lines(self, lines: Mapping[int, str]) -> None:
        """Write where each line of the items begins, and its checksum."""
        arrays = {
            "ids": np.array(list(lines), np.int64),
            "starts": np.cumsum([0, *map(len, lines.values())], dtype=np.int64),  # and where the last one ends
            "digests": np.array([_line_digest(line.encode()) for line in lines.values()], np.int64),
        }
        save_arrays(self._lines_file, _LINES, _LINES_VERSION, arrays)

    def _read_lines(self, ids: set[int], checksum: str) -> list[bytes]:
        """Return the lines of these ids, those that there are, in the order of the file; each is checked."""
        file = load_arrays(self._lines_file, _LINES, _LINES_VERSION, memory_map=True)
        if file.checksum != checksum:
            raise FormatError(f"{self._lines_file} does not belong to {self._about_file}: index the images again")
        rows = np.flatnonzero(np.isin(file.arrays["ids"], np.array(list(ids), np.int64)))
        starts, digests, lines = file.arrays["starts"], file.arrays["digests"], []
        if not self._items_file.is_file():
            raise self._altered_items()
        with self._items_file.open("rb") as items:
            for row in rows.tolist():
                items.seek(int(starts[row]))
                lines.append(items.read(int(starts[row + 1] - starts[row])))
                if _line_digest(lines[-1]) != digests[row]:
                    raise self._altered_items()
        return lines

    def _altered_items(self) -> FormatError:
        return FormatError(f"{self._items_file} is missing, altered or of another index: index the images again")

    @property
    def _about_file(self) -> Path:
        return self.path / "collection.json"

    @property
    def _items_file(self) -> Path:
        return self.path / "items.jsonl"

    @property
    def _lines_file(self) -> Path:
        return self.path / "lines.safetensors"

    def _about(self) -> dict[str, Any]:
        """Return what is known of all images together."""
        if not self.exists:
            raise DataError(f"{self.path} holds no encoded images: make it by dmuh index RUN IMAGES --out {self.path}")
        about = read_document(self._about_file, _KIND)
        if not about["finished"]:
            raise FormatError(f"{self.path} was not written to its end: index the images again")
        return about


def items_of(codes: Codes, dataset: Dataset, positions: Sequence[int]) -> list[Item]:
    """Return what is known of images by their codes and by the data set that has them at these positions."""
    unsure = codes.image_uncertainty
    return [
        Item(
            id=id_,
            path=dataset.whole_path(position),
            labels=dataset.label_names(position),
            uncertainty=None if unsure is None else round(float(unsure[row]), 6),
            metadata={column: values[position] for column, values in dataset.metadata.items()},
        )
        for row, (id_, position) in enumerate(zip(codes.ids.tolist(), positions, strict=True))
    ]


def _is_first(about: Mapping[str, Any]) -> bool:
    """Whether a collection is of the first version, whose uncertainties are no probabilities."""
    return "version" not in about


def _kept(codes: Codes) -> Codes:
    """Return what a collection keeps of codes: levels, where they have them, in place of an uncertainty per bit."""
    return Codes(codes.bits, codes.n_bits, None, codes.ids, codes.levels, codes.worth, codes.contents)


def _line_digest(line: bytes) -> int:
    """Return the first 64 bits of the SHA-256 of a line."""
    return int.from_bytes(hashlib.sha256(line).digest()[:8], "little", signed=True)
