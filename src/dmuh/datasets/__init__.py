"""Data sets by name. A new one is a file here with a function that returns a Dataset, and a line in DATASETS."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dmuh.config import DataSettings, build, keys_of
from dmuh.datasets import cifar10, clothing1m, coco, nuswide
from dmuh.datasets.base import Dataset, ImageFiles, Labels, Texts, multi_hot, one_hot
from dmuh.datasets.cifar10 import holds_cifar10, load_cifar10
from dmuh.datasets.clothing1m import load_clothing1m
from dmuh.datasets.coco import load_coco
from dmuh.datasets.csv_list import load_csv
from dmuh.datasets.download import Progress, fetch
from dmuh.datasets.features import load_features
from dmuh.datasets.folder import load_folder, load_images
from dmuh.datasets.mnist5k import load_mnist5k
from dmuh.datasets.nuswide import load_nuswide
from dmuh.errors import ConfigError, DataError, unknown
from dmuh.images import OnBadImage

__all__ = [
    "DATASETS",
    "Archive",
    "Dataset",
    "DatasetEntry",
    "ImageFiles",
    "Labels",
    "Texts",
    "download_dataset",
    "load_dataset",
    "load_images",
    "multi_hot",
    "one_hot",
]


@dataclass(frozen=True)
class Archive:
    """A file that may be fetched freely; `is_in` tells whether a folder or file has its content already."""

    url: str
    file: str
    sha256: str
    is_in: Callable[[Path], bool]


@dataclass(frozen=True)
class DatasetEntry:
    """One entry of DATASETS.

    read      how it is read
    protocol  the one it has by default
    about     one line about it
    obtain    how to get it, where it is neither embedded nor the user's own
    archive   what --download fetches, where that is allowed
    texts     what the setting `texts` may be, where there are sentences about the images
    """

    read: Callable[[DataSettings], Dataset]
    protocol: str
    about: str
    obtain: str = ""
    archive: Archive | None = None
    texts: str = ""


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
        texts=settings.texts,
        on_bad_image=_on_bad_image(settings),
    )


def _cifar10(settings: DataSettings) -> Dataset:
    return load_cifar10(_path(settings))


def _nuswide(settings: DataSettings) -> Dataset:
    return load_nuswide(_path(settings), _on_bad_image(settings))


def _coco(settings: DataSettings) -> Dataset:
    if settings.texts not in ("", "captions"):
        raise ConfigError(f"the texts of coco are its captions: texts must be captions, got {settings.texts!r}")
    return load_coco(_path(settings), _on_bad_image(settings), captions=bool(settings.texts))


def _clothing1m(settings: DataSettings) -> Dataset:
    kind: Literal["noisy", "clean"] = "clean" if settings.clothing_labels == "clean" else "noisy"
    return load_clothing1m(_path(settings), kind, _on_bad_image(settings))


def _on_bad_image(settings: DataSettings) -> OnBadImage:
    return "skip" if settings.on_bad_image == "skip" else "fail"


def _features(settings: DataSettings) -> Dataset:
    return load_features(_path(settings))


def _images(settings: DataSettings) -> Dataset:
    return load_images([_path(settings)])


DATASETS: dict[str, DatasetEntry] = {
    "mnist5k": DatasetEntry(_mnist5k, "mnist5k", "5,000 MNIST digits, 10 classes; embedded, the default"),
    "folder": DatasetEntry(_folder, "stratified", "your images, one folder per class"),
    "csv": DatasetEntry(
        _csv,
        "stratified",
        "your images, listed in a CSV file with one or more labels each",
        texts="columns of the list",
    ),
    "cifar10": DatasetEntry(
        _cifar10,
        "cifar10",
        "CIFAR-10 as distributed: its folder or archive, Python or binary version",
        cifar10.HOW,
        Archive(cifar10.URL, "cifar-10-python.tar.gz", cifar10.SHA256, holds_cifar10),
    ),
    "nuswide": DatasetEntry(
        _nuswide,
        "nuswide",
        "NUS-WIDE as released, or a list file of it: its 21 most frequent concepts",
        nuswide.HOW,
    ),
    "coco": DatasetEntry(
        _coco,
        "coco",
        "MS-COCO 2014: both image folders and their instance annotations",
        coco.HOW,
        texts="captions",
    ),
    "clothing1m": DatasetEntry(
        _clothing1m, "clothing1m", "Clothing1M: its label files, noisy or clean, and images", clothing1m.HOW
    ),
    "features": DatasetEntry(
        _features, "stratified", "feature vectors of your own: features.npy and labels.npy, or an .npz"
    ),
    "images": DatasetEntry(_images, "", "your images without labels: to encode, index and search, not to train"),
}


def load_dataset(dataset: str | DataSettings, data: str | Path | None = None, **options: str) -> Dataset:
    """Read a data set: by its name, see `dmuh list`, or by the settings of a run.

    data     the folder or file that it is read from; embedded ones have none
    options  other settings of the data set by name, such as label_column, see `dmuh list --settings`

    Images of your own are `folder`, one folder per class, or `csv`, or without labels `images`.

    >>> dmuh.load_dataset("mnist5k")
    Dataset(mnist5k: 5,000 images, 10 classes)
    >>> dmuh.load_dataset("folder", photos)
    Dataset(folder: 20 images, 2 classes)
    >>> dmuh.load_dataset("images", photos).images[0].name
    '00.png'
    """
    given: dict[str, Any] = options | ({} if data is None else {"data": str(data)})
    if isinstance(dataset, DataSettings) and not given:
        return _read(dataset)
    layer = asdict(dataset) if isinstance(dataset, DataSettings) else {"dataset": dataset}
    keys = keys_of(DataSettings)
    problems = [unknown("setting of a data set", key, keys) for key in given if key not in keys]
    settings = build(DataSettings, layer | given, problems)
    if settings is None or problems:
        raise ConfigError("; ".join(problems))
    return _read(settings)


def _read(settings: DataSettings) -> Dataset:
    entry = _entry(settings)
    if settings.texts and not entry.texts:
        known = " and ".join(f"{name} ({other.texts})" for name, other in DATASETS.items() if other.texts)
        raise ConfigError(f"the data set {settings.dataset} has no texts: they are read from {known}")
    return entry.read(settings)


def download_dataset(settings: DataSettings, progress: Progress) -> None:
    """Fetch the data set that the settings name into their folder, unless it is there.

    One that its makers hand out themselves is an error that says how to ask.
    """
    entry = _entry(settings)
    if entry.archive is None:
        if entry.obtain:
            raise DataError(f"--download cannot fetch {settings.dataset}: {entry.obtain}")
        free = ", ".join(name for name, other in DATASETS.items() if other.archive)
        raise ConfigError(f"--download is for {free}: the data set {settings.dataset} is embedded or your own")
    if not settings.data:
        raise ConfigError(f"--download needs a folder to fetch {settings.dataset} into: --data DIR")
    path = Path(settings.data)
    if entry.archive.is_in(path):
        return
    if path.name != entry.archive.file:
        if path.is_file():
            raise ConfigError(f"--download needs a folder to fetch {settings.dataset} into, but {path} is a file")
        path /= entry.archive.file
    fetch(entry.archive.url, path, entry.archive.sha256, progress)


def _entry(settings: DataSettings) -> DatasetEntry:
    if settings.dataset not in DATASETS:
        raise ConfigError(unknown("data set", settings.dataset, DATASETS))
    return DATASETS[settings.dataset]


def _path(settings: DataSettings) -> Path:
    obtain = _entry(settings).obtain
    advice = f"; {obtain}" if obtain else ""
    if not settings.data:
        raise ConfigError(f"the data set {settings.dataset} needs a folder or file: --data PATH{advice}")
    path = Path(settings.data)
    if not path.exists():
        raise DataError(f"{path} does not exist{advice}")
    return path
