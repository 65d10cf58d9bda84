"""The summary of a data set: every problem is planted, found and said; and clean data are called clean."""

import dataclasses
import io
import itertools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dmuh.config import ProtocolSettings
from dmuh.datasets import Dataset, one_hot
from dmuh.datasets.cifar10 import load_cifar10
from dmuh.datasets.csv_list import load_csv
from dmuh.datasets.folder import load_folder
from dmuh.errors import DataError
from dmuh.protocols import PROTOCOLS, Split, checks, protocol_of
from dmuh.protocols.checks import find_duplicates, summarise

CLEAN = "no image is missing, unlabelled, twice or in two parts"


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def split_of(train=(), validation=(), query=(), database=()) -> Split:
    return Split(*(np.array(part, np.int64) for part in (train, validation, query, database)))


def dataset_of(images, classes=None) -> Dataset:
    """Single-label data of two classes, in turn unless given."""
    numbers = np.arange(len(images)) % 2 if classes is None else classes
    return Dataset("x", images, one_hot(numbers, 2), ("a", "b"))


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Twelve different files of one size."""
    return [put(tmp_path / f"{n:02}.jpg", np.random.default_rng(n).bytes(5_000)) for n in range(12)]


PARTS = split_of(train=[0, 1, 2], validation=[3], query=[4, 5], database=[6, 7, 8, 9, 10, 11])

# -- identical images ------------------------------------------------------------------------------------------------


def oracle(contents: list[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for n, content in enumerate(contents):
        groups.setdefault(content, []).append(n)
    return [group for group in groups.values() if len(group) > 1]


# few sizes around that of the glimpse, and contents that differ at one place only
contents = st.builds(
    lambda size, place, value: bytes(place % size) + bytes([value]) + bytes(size - place % size - 1) if size else b"",
    st.sampled_from([0, 1, 3, 1024, 1025, 3000]),
    st.sampled_from([0, 1, 700, 1500, 2999]),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(contents, st.booleans()), max_size=30), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_files_and_bytes_are_grouped_as_a_dictionary_would(tmp_path_factory, items, per_task):
    folder = tmp_path_factory.mktemp("files")
    images = [content if loose else put(folder / f"{n}.png", content) for n, (content, loose) in enumerate(items)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_PER_TASK", per_task)
        assert find_duplicates(images) == oracle([content for content, _ in items])


@given(st.lists(st.binary(min_size=12, max_size=12).map(lambda b: bytes(x % 2 for x in b)), max_size=40))
@settings(deadline=None, max_examples=60)
def test_rows_of_an_array_are_grouped_as_a_dictionary_would(rows):
    images = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 2, 2, 3)
    assert find_duplicates(images) == oracle(rows)
    assert find_duplicates(np.asfortranarray(images)) == oracle(rows)
    assert find_duplicates(images.astype(np.float32).reshape(-1, 12)) == oracle(rows)
    assert find_duplicates(list(images)) == oracle(rows)
    assert find_duplicates([Image.fromarray(image) for image in images]) == oracle(rows)


def test_images_in_memory_of_another_shape_or_mode_differ():
    grey = np.zeros((2, 6), np.uint8)
    arrays = [grey, grey.reshape(3, 4), grey.reshape(2, 2, 3), grey.copy()]
    assert find_duplicates(arrays) == [[0, 3]]
    pictures = [Image.new("L", (4, 4)), Image.new("P", (4, 4)), Image.new("P", (4, 4)), Image.new("L", (2, 8))]
    pictures[2].putpalette([9] * 768)
    assert find_duplicates(pictures) == []
    assert find_duplicates([*pictures, pictures[2].copy()]) == [[2, 4]]
    assert find_duplicates([*arrays, *pictures, bytes(12)]) == [[0, 3]]
    file = io.BytesIO()
    Image.effect_noise((40, 40), 50).save(file, "PNG")
    cut = [Image.open(io.BytesIO(file.getvalue()[:500])) for _ in range(2)]
    assert find_duplicates(cut) == []


def test_copies_links_and_paths_listed_twice(files, tmp_path):
    copied = shutil.copy(files[3], tmp_path / "copy.jpg")
    (tmp_path / "link.jpg").symlink_to(files[7])
    images = [*files, copied, tmp_path / "link.jpg", files[0], str(files[0])]
    assert find_duplicates(images) == [[0, 14, 15], [3, 12], [7, 13]]


def test_files_that_cannot_be_read_are_left_out(files, tmp_path, monkeypatch):
    assert find_duplicates([]) == []
    gone = [tmp_path / "gone.jpg", tmp_path / "gone.jpg", tmp_path, tmp_path]
    assert find_duplicates([*gone, files[0], files[0]]) == [[4, 5]]
    put(files[1], files[0].read_bytes())
    assert find_duplicates(files) == [[0, 1]]
    for name in ("_glimpse", "_content"):  # gone between one look and the next
        whole = getattr(checks, name)

        def lose(image, *size, whole=whole):
            Path(image).unlink(missing_ok=True)
            return whole(image, *size)

        with monkeypatch.context() as patch:
            patch.setattr(checks, name, lose)
            assert find_duplicates(files[:2]) == []
        for file in files[:2]:
            put(file, b"same")


# -- summaries -------------------------------------------------------------------------------------------------------


def test_a_clean_set(files):
    summary = summarise(dataset_of(files), PARTS, "stratified")
    assert summary.problems == []
    assert summary.lines() == [
        "12 images, 2 classes, 1.00 labels per image, protocol stratified: train 3, validation 1, query 2, database 6",
        CLEAN,
    ]
    assert json.loads(json.dumps(summary.to_dict())) == summary.to_dict()
    assert summary.to_dict() == {
        "protocol": "stratified", "images": 12, "classes": 2, "labels_per_image": 1.0,
        "parts": {"train": 3, "validation": 1, "query": 2, "database": 6},
        "unlabelled": 0, "missing": 0, "listed_twice": 0, "identical": 0, "leaked_to_database": 0,
        "leaked_to_training": 0, "without_relevant": 0, "first": {}, "looked_for_copies": True, "notes": [],
    }  # fmt: skip


def test_a_clean_array_of_several_labels():
    images = np.arange(12, dtype=np.uint8).reshape(12, 1, 1).repeat(4, axis=1)
    dataset = Dataset("x", images, np.array([[1, 1, 0], [1, 0, 0]] * 6, np.uint8), ("a", "b", "c"))
    lines = summarise(dataset, PARTS, "mine").lines()
    assert lines[0].startswith("12 images, 3 classes, 1.50 labels per image, protocol mine: ")
    assert lines[1:] == [CLEAN]


def test_training_images_may_be_searched(files):
    joint = dataclasses.replace(PARTS, database=np.array([0, 1, 2, 3, *range(6, 12)]))
    assert summarise(dataset_of(files), joint, "x").lines()[1:] == [CLEAN]


@pytest.mark.parametrize(("part", "words"), [
    ("database", r"2 query images are in the database, the first is .*04\.jpg"),
    ("train", r"2 query images are among the training images, the first is .*04\.jpg"),
    ("validation", r"2 query images are among the training images, the first is .*04\.jpg"),
])  # fmt: skip
def test_a_query_in_another_part_is_an_error(files, part, words):
    with pytest.raises(DataError, match=words):
        summarise(dataset_of(files), dataclasses.replace(PARTS, **{part: np.array([1, 4, 5])}), "x")


def test_copies_within_a_folder(tmp_path):
    for n, name in itertools.product(range(10), "ab"):
        put(tmp_path / name / f"{n}.png", f"{name}{n}".encode())
    for name in ("copy.png", "other copy.png"):
        shutil.copy(tmp_path / "a" / "3.png", tmp_path / "b" / name)
    dataset = load_folder(tmp_path)
    split = protocol_of(ProtocolSettings(), "folder").split(dataset.labels, 0)
    summary = summarise(dataset, split, "stratified")
    assert summary.identical == 2
    assert summary.listed_twice == 0
    assert (
        summary.problems[0] == f"2 images are identical to an earlier one; the first is {tmp_path / 'b' / 'copy.png'}"
    )


def test_copies_across_parts_are_leaks(files):
    put(files[5], files[8].read_bytes())  # a query that is searched
    assert summarise(dataset_of(files), PARTS, "x").problems == [
        f"1 images are identical to an earlier one; the first is {files[8]}",
        "1 queries have an identical copy in the database, a leak that makes the result look better than it is; "
        f"the first is {files[5]}",
    ]
    put(files[4], files[2].read_bytes())  # … that trains
    put(files[5], files[3].read_bytes())  # … that watches the training
    put(files[9], files[3].read_bytes())  # … and is searched as well
    summary = summarise(dataset_of(files), PARTS, "x")
    assert (summary.leaked_to_training, summary.leaked_to_database, summary.identical) == (2, 1, 3)
    assert summary.first["leaked_to_training"] == str(files[4])
    assert summary.first["leaked_to_database"] == str(files[5])
    assert "2 queries have an identical copy in the training part, a leak" in "\n".join(summary.lines())


def test_copies_within_one_part_are_no_leak(files):
    put(files[5], files[4].read_bytes())
    put(files[7], files[6].read_bytes())
    summary = summarise(dataset_of(files), PARTS, "x")
    assert (summary.identical, summary.leaked_to_database, summary.leaked_to_training) == (2, 0, 0)


def test_an_image_listed_twice_is_told_from_a_copy(files):
    images = [*files[:10], files[0], files[4]]
    summary = summarise(dataset_of(images), PARTS, "x")
    assert (summary.listed_twice, summary.identical, summary.leaked_to_database) == (2, 0, 1)
    assert summary.problems[0] == f"2 images are listed twice; the first is {files[0]}"
    put(files[1], files[0].read_bytes())
    summary = summarise(dataset_of(images), PARTS, "x")
    assert (summary.listed_twice, summary.identical) == (2, 1)


def test_arrays_have_copies_too():
    images = np.arange(12, dtype=np.uint8).reshape(12, 1, 1)
    images[11] = images[4]
    summary = summarise(dataset_of(images), PARTS, "x")
    assert (summary.identical, summary.listed_twice, summary.leaked_to_database) == (1, 0, 1)
    assert summary.first == {"identical": "image 11", "leaked_to_database": "image 4"}


def test_images_without_a_label_and_queries_without_a_match(files):
    labels = one_hot(np.array([0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]), 2)
    labels[10:] = 0
    dataset = Dataset("x", files, labels, ("a", "b"))
    summary = summarise(dataset, dataclasses.replace(PARTS, database=np.array([6, 7, 8, 9])), "x")
    assert summary.labels_per_image == 1
    assert summary.problems == [
        f"2 images without a label take no part; the first is {files[10]}",
        f"1 queries have no relevant image in the database and count as 0; the first is {files[4]}",
    ]


def test_missing_images_of_a_list_are_noted(files, tmp_path):
    rows = [f"{path.name},{'ab'[n % 2]}" for n, path in enumerate(files)]
    (tmp_path / "list.csv").write_text("\n".join(["image,label", *rows, "gone.jpg,a", "gone too.jpg,b"]))
    dataset = load_csv(tmp_path / "list.csv", on_bad_image="skip")
    (problem,) = summarise(dataset, PARTS, "x").problems
    assert "names 2 images that do not exist" in problem
    files[0].unlink()  # after it was read
    _, problem = summarise(dataset, PARTS, "x").problems
    assert problem == f"1 image files do not exist; the first is {files[0]}"


def test_of_very_many_files_copies_are_not_looked_for(files, monkeypatch):
    put(files[5], files[8].read_bytes())
    monkeypatch.setattr(checks, "MAX_FILES", 11)
    summary = summarise(dataset_of(files), PARTS, "x")
    assert not summary.looked_for_copies
    assert summary.problems == ["identical images were not looked for, as there are more than 11 files"]
    images = np.zeros((12, 1, 1), np.uint8)
    assert summarise(dataset_of(images), PARTS, "x").identical == 11  # an array is in memory already


@pytest.mark.slow
def test_the_real_images():
    """CIFAR-10 below DMUH_DATA, in the official layout."""
    root = os.environ.get("DMUH_DATA")
    if not root or not (Path(root) / "cifar-10-batches-py").is_dir():
        pytest.skip("DMUH_DATA names no folder with cifar-10-batches-py")
    data = load_cifar10(Path(root))
    distinct = len({image.tobytes() for image in data.images})
    for name in ("cifar10", "cifar10-59k", "cifar10-full"):
        summary = summarise(data, PROTOCOLS[name].split(data.labels, 0, data.test), name)
        assert summary.lines()[0].startswith(f"60,000 images, 10 classes, 1.00 labels per image, protocol {name}: ")
        assert summary.identical == 60_000 - distinct
        assert distinct < 60_000 or summary.lines()[1:] == [CLEAN]
