"""cifar10: 60,000 images of 32 × 32 pixels in ten classes, from what its makers distribute.

The folder or the archive of the Python version (cifar-10-batches-py, cifar-10-python.tar.gz) or of the binary version
(cifar-10-batches-bin, cifar-10-binary.tar.gz), or the folder that one lies in. The 50,000 training images come first,
then the 10,000 test images.

The Python version is pickled. It is read without unpickling (see `pickled`), so that a file that is not what it seems
cannot run anything.
"""

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from dmuh.datasets.base import Dataset, one_hot
from dmuh.datasets.pickled import as_uint8, read_pickled
from dmuh.errors import DataError

HOW = "get it from www.cs.toronto.edu/~kriz/cifar.html, or let `dmuh train --download` fetch it (170 MB)"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TRAIN = tuple(f"data_batch_{n}" for n in range(1, 6))
_TEST = "test_batch"
_BATCH = 10_000
_PIXELS = 3 * 32 * 32
_LARGEST = 64 * 2**20  # bytes that are read of a batch, which has 31 million: an archive may promise anything
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")

Read = Callable[[str], bytes]  # the content of a batch, by its name


def load_cifar10(source: Path) -> Dataset:
    """Read the folder or the archive, or the folder that either lies in."""
    with _open(source) as (place, names, read):
        return _read(place, names, read)


def holds_cifar10(source: Path) -> bool:
    """Tell whether all batches are there, without reading them."""
    try:
        with _open(source) as (_, names, _):
            return names.issuperset(_wanted(names))
    except DataError:
        return False


@contextmanager
def _open(source: Path) -> Iterator[tuple[Path, set[str], Read]]:
    """Yield where the batches lie, the names of all files there, and how one is read."""
    place = _find(source) if source.is_dir() else source
    if place.is_dir():
        yield place, {path.name for path in place.iterdir()}, lambda name: _content((place / name).open("rb"))
        return
    try:
        with tarfile.open(place) as archive:
            members = {Path(member.name).name: member for member in archive if member.isfile()}

            def read(name: str) -> bytes:
                file = archive.extractfile(members[name])
                assert file is not None
                return _content(file)

            yield place, set(members), read
    except DataError:
        raise
    except Exception as error:  # a broken archive raises nearly anything
        raise DataError(f"{place} is not a CIFAR-10 folder or a whole archive of it: {error}") from error


def _content(file: IO[bytes]) -> bytes:
    """Read a batch, and no more than one has; what is longer is refused for its length."""
    with file:
        return file.read(_LARGEST)


def _find(folder: Path) -> Path:
    for inside in (folder, *(folder / name for name in _FOLDERS)):
        if any(inside.glob("*_batch*")):
            return inside
    for archive in (folder / name for name in _ARCHIVES):
        if archive.is_file():
            return archive
    raise DataError(
        f"{folder} holds no CIFAR-10: expected data_batch_1 … data_batch_5 and test_batch in it, or below it "
        f"{', '.join((*_FOLDERS, *_ARCHIVES[:-1]))} or {_ARCHIVES[-1]}; {HOW}"
    )


def _wanted(names: set[str]) -> list[str]:
    binary = f"{_TEST}.bin" in names
    return [f"{name}.bin" if binary else name for name in (*_TRAIN, _TEST)]


def _read(source: Path, names: set[str], read: Read) -> Dataset:
    wanted = _wanted(names)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(f"{source} lacks {', '.join(missing)} of CIFAR-10")
    images, classes = [], []
    for name in wanted:
        binary = name.endswith(".bin")
        pixels, numbers = _from_binary(read(name)) if binary else _from_pickle(read(name), f"{source}: {name}")
        if pixels.shape != (_BATCH, _PIXELS) or numbers.shape != (_BATCH,) or numbers.max() > 9 or numbers.min() < 0:
            raise DataError(f"{source}: {name} does not hold {_BATCH:,} images of 3 × 32 × 32 pixels in ten classes")
        images.append(np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)))
        classes.append(numbers)
    y = np.concatenate(classes)
    return Dataset(
        "cifar10", np.concatenate(images), one_hot(y, 10), CLASSES, test=np.arange(len(y)) >= len(_TRAIN) * _BATCH
    )


def _from_binary(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if len(content) % (1 + _PIXELS):
        return np.empty((0, 0), np.uint8), np.empty(0, np.int64)
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def _from_pickle(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        match read_pickled(content):
            case {b"data": data, b"labels": list(labels)}:
                pixels = as_uint8(data)
            case _:
                raise ValueError("it holds no data and labels")
        if any(type(label) is not int or not 0 <= label <= 9 for label in labels):
            raise ValueError("its labels are not whole numbers from 0 to 9")
    except ValueError as error:
        raise DataError(f"{name} is not a batch of CIFAR-10's Python version: {error}") from error
    return pixels, np.array(labels, np.int64)
