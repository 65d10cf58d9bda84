"""Codes by class of a folder whose folders are classes: a second catalogue, with the ids of the first.

class/   the model, trained on the folders' names, and the catalogue; all of it can be made again
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmuh.catalogue import Catalogue, Entry, folder_labels
from dmuh.encoder import Hasher
from dmuh.opening.fitting import Fit, are_classes
from dmuh.opening.folder import KeptFolder
from dmuh.opening.models import CodeModel

log = logging.getLogger(__name__)

_NAME = "class"


@contextmanager
def class_codes(folder: KeptFolder, look: Catalogue, fit: Fit) -> Iterator[tuple[Hasher, Catalogue] | None]:
    """Yield the model and the catalogue of codes by class for the images of `look`; None where there are no classes."""
    labels = Counter(label for path in look.files() for label in folder_labels(Path(path)))
    if not are_classes(labels):
        yield None
        return
    model = CodeModel.load(folder.state / _NAME)
    if model is None or not _still_fits(model, look, labels):
        model = folder.fitted(_NAME, fit, folder.listed(look))
    with Catalogue(folder.state / _NAME / "catalogue.sqlite", model.hasher.n_bits) as catalogue:
        _follow(catalogue, look, folder, model)
        yield model.hasher, catalogue


def _still_fits(model: CodeModel, look: Catalogue, labels: Counter[str]) -> bool:
    """Return whether a model knows all classes, and most of the images that are there."""
    known = set(model.hasher.about["classes"])
    classes = {label for label, count in labels.items() if are_classes({label: count, "": count})}
    n_new = max(0, len(look) - int(model.hasher.about["images"]))
    return classes <= known and n_new <= len(look) / 2


def _follow(catalogue: Catalogue, look: Catalogue, folder: KeptFolder, model: CodeModel) -> None:
    """Have the catalogue list the images of `look`, under their ids, with codes of the model."""
    theirs, own = set(look.codes().ids.tolist()), set(catalogue.codes().ids.tolist())
    with catalogue.transaction():
        for id_ in own - theirs:
            catalogue.remove(id_, forget=False)
    made_by = catalogue.about("model")
    if made_by not in (None, model.hasher.digest):
        folder.encode_again(catalogue, model)
    catalogue.note(model=model.hasher.digest)
    missing = theirs - own
    if missing:
        codes = folder.codes(look, model, missing)
        rows = {row.id: row for row in look.rows(codes.ids.tolist())}
        entries = [
            Entry(os.fsdecode(row.path), json.loads(row.labels), json.loads(row.metadata), row.id, bool(row.added),
                  row.stamp)
            for row in (rows[id_] for id_ in codes.ids.tolist())
        ]  # fmt: skip
        catalogue.add(entries, codes)
