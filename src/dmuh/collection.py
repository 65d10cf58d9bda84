"""Collections: images that were encoded, on disk, with what is known of each.

codes.safetensors   the codes, with ids and uncertainty
items.jsonl         one line an image: id, path, labels, image uncertainty, metadata
collection.json     the model that made the codes, the checksums of the codes and items, and the percentiles of the
                    images' uncertainty
index.safetensors   the search index, once `dmuh index` made it

Each file has a checksum and says what it belongs to: one that was altered, or taken from elsewhere, is refused.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.datasets import Dataset
from dmuh.documents import file_digest, read_document, refuse_foreign, write_document
from dmuh.errors import DataError, FormatError
from dmuh.files import saved_checksum, write_text
from dmuh.index import HammingIndex

_KIND = "dmuh collection"


@dataclass(frozen=True)
class Item:
    """One image of a collection."""

    id: int
    path: str
    labels: list[str]
    uncertainty: float | None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Collection:
    """A collection's folder."""

    path: Path

    @property
    def codes_file(self) -> Path:
        """The codes."""
        return self.path / "codes.safetensors"

    @property
    def index_file(self) -> Path:
        """The index."""
        return self.path / "index.safetensors"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a collection."""
        return self._about_file.is_file()

    def write(self, codes: Codes, dataset: Dataset, model: Path, model_digest: str) -> None:
        """Write the codes of a data set's images, whose ids are their positions there."""
        unsure = codes.image_uncertainty
        items = []
        for row, position in enumerate(codes.ids.tolist()):
            item = Item(
                id=position,
                path=dataset.whole_path(position),
                labels=dataset.label_names(position),
                uncertainty=None if unsure is None else round(float(unsure[row]), 6),
                metadata={column: values[position] for column, values in dataset.metadata.items()},
            )
            items.append(item)
        self.write_items(codes, items, model, model_digest)

    def write_items(self, codes: Codes, items: Iterable[Item], model: Path, model_digest: str) -> None:
        """Write codes and what is known of each image, in the same order."""
        self.refuse_foreign()
        lines = [json.dumps(vars(item)) + "\n" for item in items]  # ASCII: a file's name need not be Unicode
        about = {"model": str(model.absolute()), "model_digest": model_digest}
        write_document(self._about_file, _KIND, about | {"finished": False})
        codes.save(self.codes_file, of=model_digest)
        write_text(self._items_file, "".join(lines))
        known = {
            "codes": saved_checksum(self.codes_file),
            "items": file_digest(self._items_file),
            "uncertainty_percentiles": uncertainty_percentiles(codes.image_uncertainty),
        }
        write_document(self._about_file, _KIND, about | known | {"finished": True})

    def refuse_foreign(self) -> None:
        """Raise if the folder has files of a collection's names that are not a collection's."""
        names = [file.name for file in (self.codes_file, self._items_file, self.index_file)]
        refuse_foreign(self.path, self._about_file.name, _KIND, names)

    def build_index(self) -> HammingIndex:
        """Make the index of the collection's codes and write it beside them."""
        index = HammingIndex().add(self.load_codes())
        index.save(self.index_file, of=self._about()["codes"])
        return index

    def load_index(self) -> HammingIndex:
        """Read the index."""
        codes = self._about()["codes"]
        if not self.index_file.is_file():
            raise DataError(f"{self.path} holds codes but no index: make it by dmuh index {self.path}")
        return HammingIndex.load(self.index_file, of=codes)

    def load_codes(self) -> Codes:
        """Read the codes."""
        about = self._about()
        if saved_checksum(self.codes_file) != about["codes"]:
            raise FormatError(f"{self.codes_file} does not belong to {self._about_file}: index the images again")
        return Codes.load(self.codes_file, of=about["model_digest"])

    def codes_digest(self) -> str:
        """Return what tells these codes from others."""
        return str(self._about()["codes"])

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights."""
        about = self._about()
        return Path(about["model"]), about["model_digest"]

    def uncertainty_percentiles(self) -> list[float] | None:
        """Return what 0, 1, …, 100% of the images stay at or below in uncertainty, if that is known."""
        percentiles: list[float] | None = self._about()["uncertainty_percentiles"]
        return percentiles

    def items(self, ids: Iterable[int] | None = None) -> dict[int, Item]:
        """Return the items by id: those asked for, or all."""
        digest = self._about()["items"]
        wanted = None if ids is None else set(ids)
        content = self._items_file.read_bytes() if self._items_file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != digest:
            raise FormatError(f"{self._items_file} is missing, altered or of another index: index the images again")
        lines = map(json.loads, content.splitlines())
        return {line["id"]: Item(**line) for line in lines if wanted is None or line["id"] in wanted}

    @property
    def _about_file(self) -> Path:
        return self.path / "collection.json"

    @property
    def _items_file(self) -> Path:
        return self.path / "items.jsonl"

    def _about(self) -> dict[str, Any]:
        """Return what is known of all images together."""
        if not self.exists:
            raise DataError(f"{self.path} holds no encoded images: make it by dmuh index RUN IMAGES --out {self.path}")
        about = read_document(self._about_file, _KIND)
        if not about["finished"]:
            raise FormatError(f"{self.path} was not written to its end: index the images again")
        return about
