"""What is reviewed: images with their labels, and vectors by which they are compared.

of a run        its data set, by the features that its training kept; where its backbone trained, by ImageNet features
of an index     its images and labels, by ImageNet features of the files, or by its codes
of a folder     labels are the folders in it; by the features that `dmuh open` keeps
of a data set   such as a CSV list, by ImageNet features
of a catalogue  what is served, by the features of its folder or by its codes
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Catalogue, folder_labels
from dmuh.catalogue.paths import displayed
from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.datasets import Dataset, Labels, multi_hot
from dmuh.errors import DataError, MissingExtraError, needs_torch
from dmuh.features import FolderFeatures, folder_features
from dmuh.images import Reading
from dmuh.runs import Run

log = logging.getLogger(__name__)

FEATURES, CODES = "features", "codes"


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images with labels, and what they are compared by.

    paths    n paths, from the root on; of images that are no files, what they are called
    labels   uint8 (n, classes), and the names of the classes
    vectors  float32 (n, n_features)
    by       what the vectors are: features or codes
    ids      int64 (n,): those in the catalogue or index, positions in a data set
    """

    paths: list[str]
    labels: Labels
    classes: tuple[str, ...]
    vectors: NDArray[np.float32]
    by: str
    ids: NDArray[np.int64]

    def names(self, row: NDArray[np.uint8]) -> tuple[str, ...]:
        """Return the names of the classes that a row (classes,) of labels has."""
        return tuple(self.classes[k] for k in np.flatnonzero(row))


def of_run(run: Run, data: Path | None, reading: Reading) -> Labelled:
    """Return all images of a run's data set, whether they trained or not."""
    dataset = run.load_dataset(data)
    if dataset.vectors is not None:
        return _of_rows(dataset, dataset.vectors, np.arange(len(dataset)))
    with needs_torch("features of a run's images"):
        from dmuh.trainer.kept_features import frozen_network, image_features
    return _of_rows(dataset, *image_features(dataset, reading, frozen_network(run)))


def of_dataset(dataset: Dataset, reading: Reading) -> Labelled:
    """Return the images of a data set."""
    if dataset.vectors is not None:
        return _of_rows(dataset, dataset.vectors, np.arange(len(dataset)))
    with needs_torch("features of images"):
        from dmuh.trainer.kept_features import image_features
    return _of_rows(dataset, *image_features(dataset, reading))


def of_folder(folder: Path, reading: Reading, features: FolderFeatures | None = None) -> Labelled:
    """Return the images below a folder that lie in folders, which are their labels."""
    found = features or folder_features(folder, reading=reading)
    labels, classes = _matrix([folder_labels(path) for path in found.paths], folder)
    paths = [str((folder / path).absolute()) for path in found.paths]
    return Labelled(paths, labels, classes, found.vectors, FEATURES, np.arange(len(paths)))


def of_index(collection: Collection, reading: Reading, by: str | None = None) -> Labelled:
    """Return the images of an index.

    by  features: of the files; codes: of the index. If not given, features where all files and torch are there.
    """
    codes, items = collection.load_codes(), collection.items()
    listed = [items[id_] for id_ in codes.ids.tolist()]
    labels, classes = _matrix([item.labels for item in listed], collection.path)
    paths = [item.path for item in listed]
    gone = next((path for path in paths if not os.path.isfile(path)), None)  # noqa: PTH113 (a hundred thousand of them)
    if by == FEATURES and gone is not None:
        raise DataError(f"{gone}, an image of {collection.path}, does not exist: put it back, or judge by --by codes")
    if by != CODES and gone is None:
        try:
            found = of_dataset(Dataset("index", [Path(path) for path in paths], labels, classes), reading)
        except MissingExtraError as error:
            if by == FEATURES:
                raise
            log.warning("%s; labels are judged by the codes of the index", error)
        else:
            return Labelled(found.paths, found.labels, classes, found.vectors, FEATURES, codes.ids[found.ids])
    return Labelled(paths, labels, classes, code_vectors(codes), CODES, codes.ids)


def of_catalogue(catalogue: Catalogue, root: Path, features: FolderFeatures | None = None) -> Labelled:
    """Return what is served of a folder, by the features of its images where they are given, else by codes.

    Images without a code or features take no part. Ids are those of the catalogue.
    """
    codes = catalogue.codes()
    rows = {row.id: row for row in catalogue.listed("id", len(codes))}
    position = {id_: n for n, id_ in enumerate(codes.ids.tolist())}
    if features is None:
        ids, vectors, by = list(rows), code_vectors(codes), CODES
        chosen = np.array([position[id_] for id_ in ids], np.int64)
    else:
        known = {os.fsdecode(row.path): row.id for row in rows.values() if not row.added}
        chosen = np.array([n for n, path in enumerate(features.paths) if str(path) in known], np.int64)
        ids = [known[str(features.paths[n])] for n in chosen.tolist()]
        vectors, by = features.vectors, FEATURES
    labels, classes = _matrix([json.loads(rows[id_].labels) for id_ in ids], root)
    paths = [str(root / os.fsdecode(rows[id_].path)) for id_ in ids]
    return Labelled(paths, labels, classes, vectors[chosen], by, np.array(ids, np.int64))


def code_vectors(codes: Codes) -> NDArray[np.float32]:
    """Return codes as vectors (n, n_bits): 1 or -1 for each bit, times how sure it is."""
    signs = np.where(codes.unpack() == 1, np.float32(1), np.float32(-1))
    unsure = codes.uncertainty
    return signs if unsure is None else signs * (1 - 2 * unsure)


def _of_rows(dataset: Dataset, vectors: NDArray[np.float32], positions: NDArray[np.int64]) -> Labelled:
    if not dataset.labels.any():
        raise DataError(f"the data set {dataset.name} has no labels that could be wrong: give one with labels")
    paths = [dataset.whole_path(position) for position in positions.tolist()]
    return Labelled(paths, dataset.labels[positions], dataset.classes, vectors, FEATURES, positions)


def _matrix(names: Sequence[Sequence[str]], source: Path) -> tuple[Labels, tuple[str, ...]]:
    """Return the label matrix of each image's class names, and the classes."""
    texts = [[displayed(name) for name in row] for row in names]
    classes = tuple(sorted({name for row in texts for name in row}))
    if len(classes) < 2:
        raise DataError(f"labels can be told wrong only where there are two or more, {source} has {len(classes)}")
    return multi_hot(texts, classes), classes
