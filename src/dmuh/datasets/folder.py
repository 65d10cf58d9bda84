"""folder: images on disk, one folder a class; and `images`: a folder or list of files without labels."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmuh.datasets.base import Dataset, multi_hot
from dmuh.errors import DataError
from dmuh.images import SUFFIXES, find_images


def load_folder(root: Path, class_folder: Literal["top", "own"] = "top") -> Dataset:
    """Read a tree of images; the class is the first folder below the root, or the folder the image lies in."""
    paths = _images_below(root)
    names: list[list[str]] = []
    for path in paths:
        parts = path.relative_to(root).parts[:-1]
        name = "/".join(parts) if class_folder == "own" else "".join(parts[:1])
        names.append([name] if name else [])
    classes = sorted({name for own in names for name in own})
    if not classes:
        raise DataError(
            f"{root} has {len(paths):,} images but no folders: put the images of each class into a folder of its own"
        )
    loose = sum(not own for own in names)
    notes = (f"{loose:,} images lie beside the class folders and have no label",) if loose else ()
    return Dataset("folder", paths, multi_hot(names, classes), tuple(classes), notes=notes)


def load_images(sources: Sequence[Path]) -> Dataset:
    """Read files and folders as images without labels."""
    paths: list[Path] = []
    for source in sources:
        if not source.exists():
            raise DataError(f"{source} does not exist")
        paths += [source] if source.is_file() else _images_below(source)
    return Dataset("images", paths, np.zeros((len(paths), 0), np.uint8), ())


def write_folder(dataset: Dataset, positions: NDArray[np.int64], root: Path) -> Dataset:
    """Write images that are arrays as files, one folder a class, at these positions; return the data set with paths.

    A folder that is there is taken as it is: all of it is written, or none.
    """
    paths = [root / (dataset.label_text(n) or "none") / f"{n:05}.png" for n in range(len(dataset))]
    if not root.exists():
        partial = root.with_name(f".{root.name}.dmuh-{uuid4().hex}")  # a name that nobody else gives
        partial.mkdir(parents=True)
        try:
            for position in positions.tolist():
                file = partial / paths[position].relative_to(root)
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(dataset.images[position]).save(file)
            partial.rename(root)
        except BaseException:
            shutil.rmtree(partial)
            raise
    return replace(dataset, images=paths)


def _images_below(root: Path) -> list[Path]:
    if not root.is_dir():
        raise DataError(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")
    paths = find_images(root)
    if not paths:
        raise DataError(f"no images below {root}: looked for {', '.join(SUFFIXES)}")
    return paths
