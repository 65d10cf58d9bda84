"""Dataset: images that are read lazily and one multi-hot label matrix."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmuh.errors import DataError, InputError, unknown
from dmuh.images import Images, OnBadImage, name_of

Labels = NDArray[np.uint8]
Texts = tuple[tuple[str, ...], ...] | NDArray[np.float32]  # one or more sentences about each image, or a vector
_SAMPLED = 64  # files whose content is read to tell copies from other images of the same sizes


@dataclass(frozen=True)
class ImageFiles:
    """What the files of some images were, as digests: the sizes of all, and the content of a few.

    Equal for copies of the same files, as far as that can be told without reading all. Empty where images are no files:
    then the fingerprint of the data set has their content.
    """

    sizes: str = ""
    sample: str = ""


@dataclass(frozen=True, eq=False)
class Dataset:
    """N images and what is known of them.

    name      of the source
    images    N paths, or an array (N, H, W) or (N, H, W, 3): anything whose items are images; or feature vectors
              float32 (N, n_features)
    labels    uint8 (N, classes), 1 where the image has the class; also for single-label data
    classes   the names of the columns
    metadata  other columns, each with N values
    test      bool (N,) which images its makers set aside to test with, where they did
    texts     N tuples of one or more sentences about the image, where texts were read; or feature vectors of texts
              float32 (N, n_features)
    notes     what was noticed while reading, one sentence each

    >>> images = np.zeros((3, 32, 32, 3), np.uint8)
    >>> dmuh.Dataset("mine", images, dmuh.one_hot([0, 1, 0]), ("cat", "dog"))
    Dataset(mine: 3 images, 2 classes)
    """

    name: str
    images: Images
    labels: Labels
    classes: tuple[str, ...]
    metadata: dict[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    test: NDArray[np.bool_] | None = None
    texts: Texts | None = None

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.images), len(self.classes)):
            raise InputError(
                f"labels must have shape {(len(self.images), len(self.classes))} (images, classes), "
                f"got {self.labels.shape}"
            )
        if isinstance(self.texts, np.ndarray):
            if self.texts.dtype != np.float32 or self.texts.ndim != 2 or len(self.texts) != len(self.images):
                raise InputError(
                    f"vectors of texts must be float32 ({len(self.images)}, n_features), got {self.texts.dtype} of "
                    f"shape {self.texts.shape}"
                )
        elif self.texts is not None and (len(self.texts) != len(self.images) or not all(self.texts)):
            raise InputError(
                f"texts must be one or more sentences for each of {len(self.images):,} images, got "
                f"{sum(map(bool, self.texts)):,} with some"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        n = len(self.classes)
        classes = f"{n:,} class{'' if n == 1 else 'es'}" if n else "no labels"
        return f"Dataset({self.name}: {len(self):,} {'images' if self.vectors is None else 'vectors'}, {classes})"

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """The feature vectors (N, n_features), if that is what the data set has instead of images.

        >>> features = np.zeros((3, 16), np.float32)
        >>> dmuh.Dataset("features", features, dmuh.one_hot([0, 1, 0]), ("cat", "dog")).vectors.shape
        (3, 16)
        >>> dmuh.load_dataset("folder", photos).vectors is None
        True
        """
        images = self.images
        is_matrix = isinstance(images, np.ndarray) and images.dtype == np.float32
        return cast(NDArray[np.float32], images) if is_matrix else None

    def take(self, positions: NDArray[np.int64]) -> Images:
        """Return the images at these positions.

        >>> [path.name for path in dmuh.load_dataset("folder", photos).take(np.array([0, 3]))]
        ['00.png', '03.png']
        """
        return self.images[positions] if isinstance(self.images, np.ndarray) else [self.images[i] for i in positions]

    def path(self, position: int) -> str:
        """Return the path of an image, or what to call it where it has none.

        >>> dmuh.load_dataset("folder", photos).path(3)
        '.../ones/03.png'
        >>> dmuh.Dataset("noise", np.zeros((9, 8, 8), np.uint8), np.ones((9, 1), np.uint8), ("any",)).path(3)
        'image 3'
        """
        return name_of(self.images[position], position)

    def whole_path(self, position: int) -> str:
        """Return the path of an image from the root on, or what to call it where it has none.

        >>> dmuh.load_dataset("folder", photos).whole_path(3).startswith("/")
        True
        """
        path = self.path(position)
        return str(Path(path).absolute()) if isinstance(self.images[position], str | Path) else path

    def label_names(self, position: int) -> list[str]:
        """Return the names of an image's classes.

        >>> dmuh.load_dataset("folder", photos).label_names(3)
        ['ones']
        """
        return [self.classes[k] for k in np.flatnonzero(self.labels[position])]

    def label_text(self, position: int) -> str:
        """Return the names of an image's classes, with semicolons between them.

        >>> labels = np.array([[1, 1]], np.uint8)
        >>> dmuh.Dataset("mine", ["beach.jpg"], labels, ("sea", "sky")).label_text(0)
        'sea;sky'
        """
        return ";".join(self.label_names(position))

    def fingerprint(self) -> str:
        """Return a digest of what the images are called, how they are labelled, and of the texts about them.

        It says whether two loads saw the same data; folders may move, so what is above all images does not count.

        >>> dmuh.load_dataset("folder", photos).fingerprint() == dmuh.load_dataset("images", photos).fingerprint()
        False
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.classes, self.labels.shape)).encode())
        digest.update(np.ascontiguousarray(self.labels).data)
        if isinstance(self.images, np.ndarray):
            digest.update(self._array_digest)
        else:
            paths = [
                _as_path(name_of(image, n) if not isinstance(image, Path) else image).parts
                for n, image in enumerate(self.images)
            ]
            above = len(os.path.commonprefix([parts[:-1] for parts in paths]))  # noqa: RUF071 (of parts, not of characters)
            for parts in paths:
                digest.update(os.fsencode("/".join(parts[above:])) + b"\0")
        if isinstance(self.texts, np.ndarray):
            digest.update(np.ascontiguousarray(self.texts).data)
        elif self.texts is not None:
            digest.update(json.dumps(self.texts).encode())
        return digest.hexdigest()

    @cached_property
    def _array_digest(self) -> bytes:
        """The digest of the images' array, which is large and asked for often."""
        return hashlib.sha256(np.ascontiguousarray(self.images).data).digest()

    def image_files(self, positions: NDArray[np.int64]) -> ImageFiles:
        """Return what the files of the images at these positions look like now.

        >>> photo_set = dmuh.load_dataset("folder", photos)
        >>> photo_set.image_files(np.array([0, 1])) == photo_set.image_files(np.array([0, 1]))
        True
        """
        paths = (
            [] if isinstance(self.images, np.ndarray) else [self.images[position] for position in positions.tolist()]
        )
        if not paths or not all(isinstance(path, str | Path) for path in paths):
            return ImageFiles()
        files = [_as_path(cast(str, path)) for path in paths]
        contents = [
            hashlib.sha256(file.read_bytes() if file.is_file() else b"").hexdigest()
            for file in files[:: -(-len(files) // _SAMPLED)]
        ]
        return ImageFiles(_digest([_size_and_time(file)[0] for file in files]), _digest(contents))

    def stamps(self) -> NDArray[np.int64]:
        """Return size and time of change, in nanoseconds, of each image's file (N, 2); zeros where it has none.

        >>> dmuh.load_dataset("folder", photos).stamps().shape
        (20, 2)
        """
        if isinstance(self.images, np.ndarray):
            return np.zeros((len(self), 2), np.int64)
        known = [_size_and_time(Path(image)) if isinstance(image, str | Path) else (0, 0) for image in self.images]
        return np.array(known, np.int64).reshape(-1, 2)

    def content_key(self) -> str:
        """Return a digest that changes when an image does: of arrays, or of each file's path, size and time.

        >>> photo_set = dmuh.load_dataset("folder", photos)
        >>> photo_set.content_key() == dmuh.load_dataset("folder", photos).content_key()
        True
        """
        digest = hashlib.sha256(str(len(self)).encode())
        if isinstance(self.images, np.ndarray):
            digest.update(repr((self.images.shape, self.images.dtype.str)).encode() + self._array_digest)
            return digest.hexdigest()
        for image in self.images:
            if isinstance(image, str | Path):
                file = _as_path(image)
                digest.update(os.fsencode(file.absolute()) + repr(_size_and_time(file)).encode() + b"\0")
            else:
                digest.update(image if isinstance(image, bytes) else np.asarray(image).tobytes())
        return digest.hexdigest()


def _as_path(image: str | Path) -> Path:
    """Return the path of an image's file; to make one of a path anew takes longer than to look at the file."""
    return image if isinstance(image, Path) else Path(image)


def _size_and_time(file: Path) -> tuple[int, int]:
    """Return the size of a file and when it was changed, or zeros where there is none."""
    try:
        about = os.stat(file)  # noqa: PTH116 (quicker than by Path)
    except OSError:
        return 0, 0
    return about.st_size, about.st_mtime_ns


def _digest(values: Sequence[int | str]) -> str:
    return hashlib.sha256(repr(list(values)).encode()).hexdigest()


def existing(paths: Sequence[Path], source: Path, on_bad_image: OnBadImage, advice: str) -> tuple[list[int], list[str]]:
    """Return the positions of the files that exist, and a note of those that do not.

    Missing files are an error that gives the advice, unless they are to be skipped and some are there.
    """
    there = [n for n, path in enumerate(paths) if path.is_file()]
    n_missing = len(paths) - len(there)
    if not n_missing:
        return there, []
    gone = next(path for n, path in enumerate(paths) if n >= len(there) or there[n] != n)
    sentence = f"{source} names {n_missing:,} images that do not exist, the first is {gone}"
    if on_bad_image == "skip" and there:
        return there, [f"{sentence}; they are left out"]
    skip = ", or leave them out by --on-bad-image skip" if there else ""
    raise DataError(f"{sentence}; {advice}{skip}")


def texts_of(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of one image: those of the sentences that say something, each once and in one line."""
    return tuple(dict.fromkeys(text for text in map(in_one_line, sentences) if text))


def in_one_line(sentence: str) -> str:
    """Return a sentence without the breaks of its lines: lines below each other are several sentences elsewhere."""
    return " ".join(line.strip() for line in sentence.splitlines() if line.strip())


def having_texts(
    positions: Sequence[int], texts: Sequence[tuple[str, ...]], source: Path, notes: list[str]
) -> list[int]:
    """Return those of the positions that have a text, and note how many have none; it is an error if that is all."""
    kept = [position for position in positions if texts[position]]
    if not kept:
        raise DataError(f"{source} has no text about any image")
    if len(kept) < len(positions):
        notes.append(f"{len(positions) - len(kept):,} images have no text and are left out")
    return kept


def multi_hot(names: Sequence[Sequence[str]], classes: Sequence[str]) -> Labels:
    """Return the label matrix (images, classes) of each image's class names."""
    column = {name: k for k, name in enumerate(classes)}
    labels = np.zeros((len(names), len(classes)), np.uint8)
    for row, image_names in enumerate(names):
        for name in image_names:
            if name not in column:
                raise InputError(unknown("class", name, classes))
        labels[row, [column[name] for name in image_names]] = 1
    return labels


def one_hot(numbers: NDArray[Any] | Sequence[int], n_classes: int | None = None) -> Labels:
    """Return the label matrix (images, classes) of one class number per image.

    >>> dmuh.one_hot([2, 0])
    array([[0, 0, 1],
           [1, 0, 0]], dtype=uint8)
    """
    y = np.asarray(numbers)
    if y.ndim != 1 or y.dtype.kind not in "iu" or (y.size and y.min() < 0):
        raise InputError(f"class numbers must be a vector of whole numbers from 0, got {y.dtype} of shape {y.shape}")
    largest = int(y.max()) if y.size else -1
    n = largest + 1 if n_classes is None else n_classes
    if largest >= n:
        raise InputError(f"class numbers must be below {n}, got {largest}")
    labels: Labels = np.zeros((len(y), n), np.uint8)
    labels[np.arange(len(y)), y] = 1
    return labels
