"""Feature vectors that people bring: how they are read, and what can be done with them."""

import gc
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from commands import dmuh, refused
from dmuh import Collection, Hasher, configure, load_dataset, train
from dmuh.config import DataSettings
from dmuh.datasets.features import load_features
from dmuh.errors import ConfigError, DataError, InputError
from dmuh.runs import Run
from dmuh.trainer.evaluation import evaluate_run

CLASS = np.arange(90) % 3
NAMES = np.array(["ant", "bee", "cow"])[CLASS]


def vectors(n: int = 90, width: int = 16) -> np.ndarray:
    """Three clusters in turn, in features of different scales."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, width)) * 3
    rows = centres[np.arange(n) % 3] + rng.normal(size=(n, width))
    return (rows * np.logspace(-0.5, 0.5, width)).astype(np.float32)


X = vectors()


def written(folder: Path, features=X, labels=CLASS, kind: str = "npz") -> Path:
    """The data set as a folder, an archive, or one file of vectors."""
    folder.mkdir(exist_ok=True)
    if kind == "npz":
        arrays = {"features": features} | ({} if labels is None else {"labels": labels})
        np.savez(folder / "set.npz", **arrays)
        return folder / "set.npz"
    np.save(folder / "features.npy", features)
    if labels is not None:
        np.save(folder / "labels.npy", labels)
    return folder / "features.npy" if kind == "npy" else folder


@pytest.mark.parametrize("kind", ["folder", "npz"])
@pytest.mark.parametrize(("labels", "classes"), [
    (CLASS, ("0", "1", "2")),
    (CLASS.astype(np.uint8), ("0", "1", "2")),
    (NAMES, ("ant", "bee", "cow")),
    (np.eye(3)[CLASS], ("0", "1", "2")),
    (np.eye(3, dtype=bool)[CLASS], ("0", "1", "2")),
], ids=["numbers", "bytes", "names", "floats", "truths"])  # fmt: skip
def test_labels_are_numbers_names_or_zeros_and_ones(tmp_path, kind, labels, classes):
    data = load_features(written(tmp_path, labels=labels, kind=kind))
    assert data.classes == classes
    assert data.labels.dtype == np.uint8
    np.testing.assert_array_equal(data.labels, np.eye(3)[CLASS])
    np.testing.assert_array_equal(data.vectors, X)


def test_several_labels_and_none_a_vector(tmp_path):
    labels = np.random.default_rng(0).integers(0, 2, (90, 4))
    labels[5] = 0
    data = load_features(written(tmp_path, labels=labels))
    np.testing.assert_array_equal(data.labels, labels)


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", "int16"])
def test_vectors_of_other_numbers_become_float32(tmp_path, dtype):
    given = (X * 10).round().clip(-99, 99).astype(dtype)
    for kind in ("folder", "npz"):
        data = load_features(written(tmp_path, given, kind=kind))
        assert data.vectors is not None
        np.testing.assert_array_equal(data.vectors, given.astype(np.float32))


@pytest.mark.parametrize("kind", ["npy", "npz", "folder"])
def test_vectors_without_labels_are_read_too(tmp_path, kind):
    data = load_features(written(tmp_path, labels=None, kind=kind))
    assert (data.classes, data.labels.shape, data.vectors.shape) == ((), (90, 0), (90, 16))


def broken(rows: np.ndarray, value: float) -> np.ndarray:
    rows = rows.copy()
    rows[[4, 7], 3] = value
    return rows


@pytest.mark.parametrize("kind", ["folder", "npz"])
@pytest.mark.parametrize(("features", "labels", "words"), [
    (X[:, 0], CLASS, r"must be a matrix of numbers \(images, features\), got float32 of shape \(90,\)"),
    (X.reshape(90, 4, 4), CLASS, r"got float32 of shape \(90, 4, 4\)"),
    (X[:0], CLASS[:0], r"shape \(0, 16\)"),
    (X[:, :0], CLASS, r"shape \(90, 0\)"),
    (NAMES[:, None], CLASS, "features must be a matrix of numbers"),
    (X > 0, CLASS, "features must be a matrix of numbers .* got bool"),
    (X.astype(complex), CLASS, "got complex128"),
    (broken(X, np.nan), CLASS, "2 feature vectors are not finite, the first is row 4"),
    (broken(X, -np.inf), CLASS, "2 feature vectors are not finite, the first is row 4"),
    (X, CLASS[:89], "90 feature vectors but 89 labels"),
    (X, CLASS - 1, "labels must be class numbers or names"),
    (X, CLASS / 2, "labels must be class numbers or names"),
    (X, np.eye(3)[CLASS] * 2, r"or 0 and 1 \(images, classes\), got float64 of shape \(90, 3\)"),
    (X, np.full(90, b"ant"), "labels must be class numbers or names"),
    (X, np.zeros((90, 2, 2)), r"got float64 of shape \(90, 2, 2\)"),
    (X, np.array([{}] * 90, dtype=object), "is not a NumPy file of plain arrays"),
    (np.array([[{}]] * 90, dtype=object), CLASS, "is not a NumPy file of plain arrays"),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(tmp_path, kind, features, labels, words):
    with pytest.raises(DataError, match=words):
        load_features(written(tmp_path, features, labels, kind))


def test_one_number_for_all_labels_is_refused(tmp_path):
    with pytest.raises(DataError, match="labels"):
        load_features(written(tmp_path, labels=np.int64(3)))


def test_class_numbers_that_are_far_apart_are_refused_or_read(tmp_path):
    source = written(tmp_path, labels=CLASS * 3_000_000)
    with suppress(DataError):
        assert len(load_features(source).classes) > 2


@pytest.mark.parametrize("damage", ["text", "empty", "cut"])
def test_files_that_are_broken_are_refused_by_name(tmp_path, damage):
    file = written(tmp_path, kind="npy")
    file.write_bytes({"text": b"1.0,2.0\n", "empty": b"", "cut": file.read_bytes()[:300]}[damage])
    with pytest.raises(DataError, match=r"features\.npy is not a NumPy file of plain arrays"):
        load_features(tmp_path)


def problem_with(file: Path) -> str:
    try:
        load_features(file)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # NumPy leaves it open
@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_an_archive_that_is_broken_is_refused_by_name(tmp_path, damage):
    file = written(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == "cut" else whole[:500] + b"\xff" * 9 + whole[509:])
    problem = problem_with(file)
    gc.collect()
    assert problem.startswith(f"DataError: {file}")


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(DataError, match=r"holds no features\.npy"):
        load_features(tmp_path)
    np.savez(tmp_path / "other.npz", vectors=X, classes=CLASS)
    with pytest.raises(DataError, match="has no array named features, it has vectors, classes"):
        load_features(tmp_path / "other.npz")
    with pytest.raises(DataError, match=r"nowhere\.npz does not exist"):
        load_dataset(DataSettings(dataset="features", data=str(tmp_path / "nowhere.npz")))


# From vectors to answers ---------------------------------------------------------------------------------------------

FAST = ["--epochs", "6", "--bits", "12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a data set, query vectors, and a run trained on the set."""
    root = tmp_path_factory.mktemp("features")
    source = written(root, labels=NAMES)
    np.save(root / "queries.npy", X[:4].astype(np.float64))
    np.save(root / "narrow.npy", X[:4, :7])
    result = dmuh("train", "--dataset", "features", "--data", source, "--out", root / "run", *FAST, "--json")
    assert json.loads(result.stdout)["map"] > 0.9
    return root


@pytest.fixture(scope="module")
def index(folder) -> Path:
    out = folder / "index"
    command = ["index", folder / "run", folder / "set.npz", "--dataset", "features", "--out", out]
    assert "90 images indexed" in dmuh(*command).stdout
    return out


def test_search_finds_vectors_by_vectors(folder, index):
    answers = json.loads(dmuh("search", index, folder / "queries.npy", "-k", "10", "--json").stdout)
    assert [answer["query"] for answer in answers] == [f"image {n}" for n in range(4)]
    for n, answer in enumerate(answers):
        assert answer["matches"][0]["hamming"] == 0
        assert [match["labels"] for match in answer["matches"]].count([str(NAMES[n])]) >= 8
    assert "may turn over" in dmuh("search", index, folder / "queries.npy", "-k", "3").stdout


def test_vectors_without_labels_can_be_encoded(folder, tmp_path):
    queries = folder / "queries.npy"
    command = ["encode", folder / "run", queries, "--dataset", "features", "--out", tmp_path / "codes"]
    assert "4 images encoded with 12 bits" in dmuh(*command).stdout
    items = Collection(tmp_path / "codes").items()
    assert [(item.id, item.labels) for item in items.values()] == [(n, []) for n in range(4)]


@pytest.fixture(scope="module")
def whole_folder(folder, index, digit_run, digit_hasher, photos) -> Path:
    """With the index, a run for images, and images beside it."""
    (folder / "photos").symlink_to(photos)
    (folder / "digits").symlink_to(digit_run.path)
    return folder


@pytest.mark.parametrize(("arguments", "sentence"), [
    ("train --dataset features --data queries.npy --out new", "features has no labels, which dmuh-plus learns from"),
    ("encode run narrow.npy --dataset features --out new", "takes feature vectors (n, 16)"),
    ("encode run photos --out new", "takes feature vectors (n, 16), with --dataset features on the command line"),
    ("search index narrow.npy", "takes feature vectors (n, 16)"),
    ("search index queries.npy queries.npy", "give one .npy file, got 2 files"),
    ("search index photos", "photos holds no features.npy"),
    ("encode digits queries.npy --dataset features --out new", "must be uint8, got float32"),
])  # fmt: skip
def test_what_does_not_fit_is_one_sentence(whole_folder, monkeypatch, arguments, sentence):
    monkeypatch.chdir(whole_folder)
    assert sentence in refused(*arguments.split())
    assert not Path("new").exists()


@pytest.mark.parametrize("backbone", [
    "smallconv",
    "timm:resnet50",
    "features:7",
    "featuress",
])  # fmt: skip
def test_vectors_take_the_backbone_for_vectors_and_no_other(folder, tmp_path, backbone):
    settings = {"dataset": "features", "data": str(folder / "set.npz"), "backbone": backbone, "epochs": 1}
    with pytest.raises(ConfigError, match=backbone):
        train(configure(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", [
    {"augment": "flip"},
    {"augment": "crop"},
    {"image_size": 64},
], ids=str)  # fmt: skip
def test_settings_for_images_are_refused_with_vectors(folder, tmp_path, setting):
    layer = {"dataset": "features", "data": str(folder / "set.npz"), "epochs": 1}
    with pytest.raises((ConfigError, DataError)):
        train(configure(layer, setting), tmp_path / "run")


@pytest.fixture(scope="module")
def hasher(folder, index) -> Hasher:
    return Hasher.load(folder / "run")


def test_a_vector_alone_and_among_others_has_the_same_code(hasher):
    whole = hasher.encode(X)
    assert not hasher.takes_images
    for part in (hasher.encode(X[7]), hasher.encode(X[7:8].astype(np.float64)), hasher.encode([X[7].tolist()])):
        assert len(part) == 1
        np.testing.assert_array_equal(part.bits[0], whole.bits[7])
        np.testing.assert_array_equal(part.uncertainty[0], whole.uncertainty[7])


@pytest.mark.parametrize("given", [
    X[:3, :15], np.zeros((2, 4, 4), np.float32), [b"no vector"], np.zeros(15), np.full((2, 16), "a"),
    np.full((1, 16), np.nan, np.float32),
], ids=["narrow", "images", "bytes", "one", "text", "nan"])  # fmt: skip
def test_what_is_no_vector_is_refused(hasher, given):
    with pytest.raises(InputError):
        hasher.encode(given)


def test_a_run_on_vectors_is_measured_by_its_own_split(folder):
    data = load_features(folder / "set.npz")
    evaluation = evaluate_run(Run(folder / "run"), data)
    again = Hasher.load(folder / "run").encode(data.vectors[evaluation.query.ids])
    np.testing.assert_array_equal(again.bits, evaluation.query.bits)
    assert evaluation.metrics.map == Run(folder / "run").evaluation()["map"] > 0.9
