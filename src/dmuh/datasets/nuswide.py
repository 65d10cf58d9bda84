"""nuswide: NUS-WIDE's 21 most frequent concepts, several per image.

As released: ImageList/Imagelist.txt, Groundtruth/AllLabels/Labels_<concept>.txt with a 0 or 1 for each image, and the
images below Flickr. Or a list file as hashing repositories pass around: a path and its 0/1 columns in each line.
"""

from pathlib import Path, PureWindowsPath

import numpy as np

from dmuh.datasets.base import Dataset, Labels, existing
from dmuh.errors import DataError
from dmuh.images import OnBadImage

HOW = (
    "ask the NUS-WIDE authors for the images by the form on lms.comp.nus.edu.sg, which also has the image list, the "
    "concept ground truth and the images' Flickr addresses"
)
N_CONCEPTS = 21


def load_nuswide(source: Path, on_bad_image: OnBadImage = "fail") -> Dataset:
    """Read the released folder, or a list file beside whose folder the images lie."""
    paths, labels, classes = _read_list(source) if source.is_file() else _read_release(source)
    notes = []
    if len(classes) > N_CONCEPTS:
        frequent = np.sort(np.argsort(-labels.sum(axis=0, dtype=np.int64), kind="stable")[:N_CONCEPTS])
        labels, classes = labels[:, frequent], tuple(classes[k] for k in frequent)
    labelled = np.asarray(labels.any(axis=1))
    if not labelled.all():
        n = int((~labelled).sum())
        notes.append(f"{n:,} of {len(labelled):,} images have none of the {len(classes)} concepts")
    rows = np.flatnonzero(labelled)
    there, missing = existing([paths[i] for i in rows], source, on_bad_image, HOW)
    rows = rows[there]
    return Dataset("nuswide", [paths[i] for i in rows], labels[rows], classes, notes=(*notes, *missing))


def _read_release(root: Path) -> tuple[list[Path], Labels, tuple[str, ...]]:
    listing, truth = root / "ImageList" / "Imagelist.txt", root / "Groundtruth" / "AllLabels"
    for wanted in (listing, truth):
        if not wanted.exists():
            raise DataError(f"{root} lacks {wanted.relative_to(root)} of NUS-WIDE: {HOW}")
    names = [
        line.strip() for line in listing.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
    ]
    files = sorted(truth.glob("Labels_*.txt"))
    if not files:
        raise DataError(f"{truth} holds no Labels_<concept>.txt: {HOW}")
    labels = np.empty((len(names), len(files)), np.uint8)
    for k, file in enumerate(files):
        column = np.array(file.read_text(encoding="ascii", errors="replace").split())
        if len(column) != len(names) or not np.isin(column, ("0", "1")).all():
            raise DataError(f"{file} does not hold a 0 or 1 for each of the {len(names):,} images of {listing}")
        labels[:, k] = column == "1"
    paths = [root.joinpath("Flickr", *PureWindowsPath(name).parts) for name in names]
    return paths, labels, tuple(file.stem.removeprefix("Labels_") for file in files)


def _read_list(file: Path) -> tuple[list[Path], Labels, tuple[str, ...]]:
    paths: list[Path] = []
    rows: list[list[bool]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        name, *flags = line.split()
        if not flags or not set(flags) <= {"0", "1"} or (rows and len(flags) != len(rows[0])):
            n = str(len(rows[0])) if rows else "some"
            raise DataError(f"{file}, line {number}: expected a path and {n} columns of 0 and 1")
        paths.append(file.parent.joinpath(*PureWindowsPath(name).parts))
        rows.append([flag == "1" for flag in flags])
    if not rows:
        raise DataError(f"{file} lists no images")
    return paths, np.array(rows, np.uint8), tuple(f"concept {k + 1}" for k in range(len(rows[0])))
