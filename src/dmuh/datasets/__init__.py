"""Data sets by name. A new one is a file here with a function that returns a Dataset, and a line in DATASETS."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dmuh.config import DataSettings
from dmuh.datasets.base import Dataset, Labels, multi_hot, one_hot
from dmuh.datasets.cifar10 import load_cifar10
from dmuh.datasets.clothing1m import load_clothing1m
from dmuh.datasets.coco import load_coco
from dmuh.datasets.csv_list import load_csv
from dmuh.datasets.folder import load_folder, load_images
from dmuh.datasets.mnist5k import load_mnist5k
from dmuh.datasets.nuswide import load_nuswide
from dmuh.errors import ConfigError, DataError, unknown
from dmuh.images import OnBadImage

__all__ = ["DATASETS", "Dataset", "Labels", "Source", "load_dataset", "load_images", "multi_hot", "one_hot"]


@dataclass(frozen=True)
class Source:
    """One entry of DATASETS: how it is read, the protocol it has by default, and a line about it."""

    read: Callable[[DataSettings], Dataset]
    protocol: str
    about: str


def _mnist5k(settings: DataSettings) -> Dataset:
    if settings.data:
        raise ConfigError(f"mnist5k is embedded and takes no data folder, got {settings.data!r}")
    return load_mnist5k()


def _folder(settings: DataSettings) -> Dataset:
    return load_folder(_path(settings), "own" if settings.class_folder == "own" else "top")


def _csv(settings: DataSettings) -> Dataset:
    file = _path(settings)
    if file.is_dir():
        lists = sorted(file.glob("*.csv"))
        if len(lists) != 1:
            raise DataError(f"{file} holds {len(lists)} .csv files: name the one to read")
        file = lists[0]
    return load_csv(
        file,
        path_column=settings.path_column,
        path_format=settings.path_format,
        label_column=settings.label_column,
        label_separator=settings.label_separator,
        on_bad_image=_on_bad_image(settings),
    )


def _cifar10(settings: DataSettings) -> Dataset:
    return load_cifar10(_path(settings))


def _nuswide(settings: DataSettings) -> Dataset:
    return load_nuswide(_path(settings), _on_bad_image(settings))


def _coco(settings: DataSettings) -> Dataset:
    return load_coco(_path(settings), _on_bad_image(settings))


def _clothing1m(settings: DataSettings) -> Dataset:
    kind: Literal["noisy", "clean"] = "clean" if settings.clothing_labels == "clean" else "noisy"
    return load_clothing1m(_path(settings), kind, _on_bad_image(settings))


def _on_bad_image(settings: DataSettings) -> OnBadImage:
    return "skip" if settings.on_bad_image == "skip" else "fail"


def _images(settings: DataSettings) -> Dataset:
    return load_images([_path(settings)])


DATASETS: dict[str, Source] = {
    "mnist5k": Source(_mnist5k, "mnist5k", "5,000 MNIST digits, 10 classes; embedded, the default"),
    "folder": Source(_folder, "stratified", "your images, one folder a class"),
    "csv": Source(_csv, "stratified", "your images, listed in a CSV file with one or more labels each"),
    "cifar10": Source(_cifar10, "cifar10", "CIFAR-10 as distributed: its folder or archive, Python or binary version"),
    "nuswide": Source(_nuswide, "nuswide", "NUS-WIDE as released, or a list file of it: its 21 most frequent concepts"),
    "coco": Source(_coco, "coco", "MS-COCO 2014: both image folders and their instance annotations"),
    "clothing1m": Source(_clothing1m, "clothing1m", "Clothing1M: its label files, noisy or clean, and images"),
    "images": Source(_images, "", "your images without labels: to encode, index and search, not to train"),
}


def load_dataset(settings: DataSettings) -> Dataset:
    """Read the data set that the settings name."""
    if settings.dataset not in DATASETS:
        raise ConfigError(unknown("data set", settings.dataset, DATASETS))
    return DATASETS[settings.dataset].read(settings)


def _path(settings: DataSettings) -> Path:
    if not settings.data:
        raise ConfigError(f"the data set {settings.dataset} needs a folder or file: --data PATH")
    path = Path(settings.data)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    return path
