"""Collections: images that were encoded, on disk, with what is known of each.

codes.safetensors   the codes, with ids and uncertainty
items.jsonl         one line an image: id, path, labels, image uncertainty, metadata
collection.json     the model that made the codes, and the percentiles of the images' uncertainty
index.safetensors   the search index, once `dmuh index` made it
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.datasets import Dataset
from dmuh.errors import DataError
from dmuh.files import read_json, read_json_lines, write_json, write_text
from dmuh.index import HammingIndex


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
        return (self.path / "collection.json").is_file()

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
        lines = [json.dumps(vars(item)) + "\n" for item in items]  # ASCII: a file's name need not be Unicode
        self.index_file.unlink(missing_ok=True)  # it is of older codes
        codes.save(self.codes_file)
        write_text(self.path / "items.jsonl", "".join(lines))
        about = {"model": str(model.absolute()), "model_digest": model_digest}
        percentiles = uncertainty_percentiles(codes.image_uncertainty)
        write_json(self.path / "collection.json", about | {"uncertainty_percentiles": percentiles})

    def build_index(self) -> HammingIndex:
        """Make the index of the collection's codes and write it beside them."""
        index = HammingIndex().add(self.load_codes())
        index.save(self.index_file)
        return index

    def load_index(self) -> HammingIndex:
        """Read the index."""
        self._check()
        if not self.index_file.is_file():
            raise DataError(f"{self.path} holds codes but no index: make it by dmuh index {self.path}")
        return HammingIndex.load(self.index_file)

    def load_codes(self) -> Codes:
        """Read the codes."""
        self._check()
        return Codes.load(self.codes_file)

    def model(self) -> tuple[Path, str]:
        """Return the run folder that made the codes, and the digest of its weights."""
        self._check()
        about = read_json(self.path / "collection.json")
        return Path(about["model"]), about["model_digest"]

    def uncertainty_percentiles(self) -> list[float] | None:
        """Return what 0, 1, …, 100% of the images stay at or below in uncertainty, if that is known."""
        self._check()
        percentiles: list[float] | None = read_json(self.path / "collection.json").get("uncertainty_percentiles")
        return percentiles

    def items(self, ids: Iterable[int] | None = None) -> dict[int, Item]:
        """Return the items by id: those asked for, or all."""
        self._check()
        wanted = None if ids is None else set(ids)
        lines = read_json_lines(self.path / "items.jsonl")
        return {line["id"]: Item(**line) for line in lines if wanted is None or line["id"] in wanted}

    def _check(self) -> None:
        if not self.exists:
            raise DataError(f"{self.path} holds no encoded images: make it by dmuh index RUN IMAGES --out {self.path}")
