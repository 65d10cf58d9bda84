"""Folders of indexes as earlier versions wrote them: codes, items, lines and a document, without a catalogue."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dmuh.codes import Codes, uncertainty_percentiles
from dmuh.collection import Collection, Item
from dmuh.files import save_arrays, saved_checksum
from dmuh.files.documents import write_document
from dmuh.index import HammingIndex

FILES = ["codes.safetensors", "collection.json", "items.jsonl", "lines.safetensors", "source.safetensors"]


def write_earlier(
    folder: Path,
    codes: Codes,
    items: Iterable[Item],
    model: Path,
    digest: str,
    *,
    version: int | None = 2,
    source: dict | None = None,
    files: np.ndarray | None = None,
    index: bool = True,
) -> str:
    """Write such a folder; return the checksum of its codes, by which others knew it.

    `source` has the images, the options and what else source.safetensors had, and `files` id, size and time (n, 3).
    """
    known, codes = list(items), codes.stored()
    folder.mkdir(parents=True, exist_ok=True)
    codes.save(folder / FILES[0], of=digest)
    if version is None:  # a number per bit that was no probability
        arrays = {"bits": codes.bits, "ids": codes.ids, "uncertainty": np.full((len(codes), codes.n_bits), 7.5, "f4")}
        save_arrays(folder / FILES[0], "dmuh codes", 1, arrays, {"n_bits": codes.n_bits, "of": digest})
    lines = [json.dumps(vars(item)) + "\n" for item in known]
    (folder / "items.jsonl").write_text("".join(lines))
    arrays = {"ids": codes.ids, "starts": np.cumsum([0, *map(len, lines)]), "digests": np.zeros(len(lines), np.int64)}
    save_arrays(folder / "lines.safetensors", "dmuh lines", 1, arrays)
    unsure = [item.uncertainty for item in known if item.uncertainty is not None]
    checksum = saved_checksum(folder / FILES[0])
    about = {
        "version": version,
        "model": str(model.absolute()),
        "model_digest": digest,
        "codes": checksum,
        "items": hashlib.sha256((folder / "items.jsonl").read_bytes()).hexdigest(),
        "lines": saved_checksum(folder / "lines.safetensors"),
        "uncertainty_percentiles": uncertainty_percentiles(unsure),
        "finished": True,
    }
    if version is None:
        del about["version"], about["lines"]
        (folder / "lines.safetensors").unlink()
    write_document(folder / "collection.json", "dmuh collection", about)
    if source is not None:
        said = {"codes": checksum, "earlier": [], "next_id": int(codes.ids.max()) + 1, **source}
        save_arrays(folder / "source.safetensors", "dmuh source of an index", 1, {"files": files}, said)
    if index:
        HammingIndex().add(codes).save(folder / "index.safetensors", of=checksum)
    return checksum


def as_earlier(collection: Collection, folder: Path, **options) -> str:
    """Write a collection as an earlier version did."""
    return write_earlier(folder, collection.load_codes(), collection.items().values(), *collection.model(), **options)
