"""folder: images on disk, one folder per class; and `images`: a folder or list of files without labels."""

import os
import shutil
from collections import Counter
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
from dmuh.images import SUFFIXES, ImageFolder, check_folder, ignored_note, look_through


def load_folder(root: Path, class_folder: Literal["top", "own"] = "top") -> Dataset:
    """Read a tree of images; the class is the first folder below the root, or the folder the image lies in."""
    folder = _images_below(root)
    paths = folder.paths
    names: list[list[str]] = []
    above = len(root.parts)
    for path in paths:
        parts = path.parts[above:-1]
        name = _text("/".join(parts) if class_folder == "own" else "".join(parts[:1]))
        names.append([name] if name else [])
    classes = sorted({name for image_names in names for name in image_names})
    if not classes:
        raise DataError(
            f"{root} has {len(paths):,} images but no folders: put the images of each class into a folder of its own"
        )
    notes = _notes(folder.ignored)
    loose = sum(not image_names for image_names in names)
    if loose:
        notes = (f"{loose:,} images lie beside the class folders and have no label", *notes)
    return Dataset("folder", paths, multi_hot(names, classes), tuple(classes), notes=notes)


def load_images(sources: Sequence[Path]) -> Dataset:
    """Read files and folders as images without labels."""
    paths: list[Path] = []
    ignored: Counter[str] = Counter()
    for source in sources:
        if not source.exists():
            raise DataError(f"{source} does not exist")
        if source.is_file():
            paths.append(source)
        else:
            folder = _images_below(source)
            paths += folder.paths
            ignored += folder.ignored
    return Dataset("images", paths, np.zeros((len(paths), 0), np.uint8), (), notes=_notes(ignored))


def write_folder(dataset: Dataset, positions: NDArray[np.int64], root: Path) -> Dataset:
    """Write images that are arrays as files, one folder per class, at these positions; return the data set with paths.

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


def _text(name: str) -> str:
    """Return a folder's name as the text of a label; bytes that are no UTF-8 become escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _images_below(root: Path) -> ImageFolder:
    check_folder(root)
    folder = look_through(root)
    if not folder.paths:
        others = "".join(f"; {note}" for note in _notes(folder.ignored))
        raise DataError(f"no images below {root}: looked for {', '.join(SUFFIXES)}{others}")
    return folder


def _notes(ignored: Counter[str]) -> tuple[str, ...]:
    return (ignored_note(ignored),) if ignored else ()
