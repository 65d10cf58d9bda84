import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.datasets import Dataset, multi_hot
from dmuh.documents import read_document, write_document
from dmuh.errors import DataError, FormatError
from dmuh.files import load_arrays, save_arrays, saved_checksum
from dmuh.index import HammingIndex
from graded import graded_codes

NAMES = ["a/1.png", "b/Füße 日本.jpg", 'b/quote " and \u2028 line\nbreak.png', "c/4.png"]
CLASSES = ("Straße", "sea", "sky")
FILES = ["codes.safetensors", "items.jsonl", "lines.safetensors", "index.safetensors", "collection.json"]
LABELS = [["sky"], ["Straße", "sky"], [], ["sea"]]


def make_dataset(root: Path) -> Dataset:
    metadata = {"site": ["n", "ö", "", "w"], "year": ["1", "2", "3", "4"]}
    return Dataset("csv", [root / name for name in NAMES], multi_hot(LABELS, CLASSES), CLASSES, metadata)


def make_codes(ids, *, uncertainty=True, seed=0, sure=1):
    outputs = np.random.default_rng(seed).standard_normal((len(ids), 12))
    return graded_codes(outputs, sure, ids) if uncertainty else Codes.from_outputs(outputs, ids=ids)


@pytest.fixture
def collection(tmp_path):
    """Three of four images, as when one could not be read."""
    made = Collection(tmp_path / "collection")
    made.write(make_codes([0, 1, 3]), make_dataset(tmp_path), tmp_path / "run", "d1e5")
    return made


def test_codes_model_and_items_come_back(collection, tmp_path):
    codes = make_codes([0, 1, 3])
    assert collection.exists
    assert collection.load_codes() == collection.load_codes(memory_map=True) == codes.stored()
    assert collection.load_codes().contents.tolist() == codes.contents.tolist()
    assert collection.model() == (tmp_path / "run", "d1e5")
    items = collection.items()
    assert list(items) == [0, 1, 3]
    assert items[1].path == str(tmp_path / NAMES[1])
    assert items[1].labels == ["Straße", "sky"]
    assert items[1].metadata == {"site": "ö", "year": "2"}
    assert items[3].metadata == {"site": "w", "year": "4"}
    expected = np.percentile(codes.image_uncertainty, range(101))
    assert collection.uncertainty_percentiles() == pytest.approx(expected, abs=1e-6)
    assert [items[i].uncertainty for i in (0, 1, 3)] == pytest.approx(codes.image_uncertainty.tolist(), abs=1e-6)


def test_items_are_found_by_id(collection):
    assert list(collection.items([3, 0])) == [0, 3]
    assert list(collection.items(iter([np.int64(1)]))) == [1]
    assert collection.items([2]) == collection.items([]) == {}


def test_a_few_items_are_read_without_the_others(collection):
    """A line that is returned is checked; another that was altered is noticed when all are read."""
    file = collection.path / "items.jsonl"
    expected = collection.items([1])
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"/1.png", b"/2.png"))  # of id 0
    assert collection.items([1]) == expected
    for ids in ([0], [1, 0], None):
        with pytest.raises(FormatError, match=r"items\.jsonl is missing, altered or of another index"):
            collection.items(ids)
    file.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="missing, altered"):
        collection.items([3])
    file.unlink()
    with pytest.raises(FormatError, match="missing, altered"):
        collection.items([1])


def test_a_collection_of_an_earlier_version_has_no_lines_file(collection):
    expected = collection.items([3, 1])
    file = collection.path / "collection.json"
    about = read_document(file, "dmuh collection")
    assert about.pop("lines")
    write_document(file, "dmuh collection", about)
    (collection.path / "lines.safetensors").unlink()
    assert collection.items([3, 1]) == expected
    (collection.path / "items.jsonl").write_text("{}\n")
    with pytest.raises(FormatError, match="missing, altered"):
        collection.items([3])


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_levels_are_kept_and_numbers_per_bit_are_not(tmp_path, sure):
    codes, collection = make_codes([0, 1, 3], sure=sure), Collection(tmp_path / "collection")
    collection.write(codes, make_dataset(tmp_path), tmp_path / "run", "d1e5")
    arrays = load_arrays(collection.codes_file, "dmuh codes", 2).arrays
    assert set(arrays) == {"bits", "ids", "contents"} | ({"levels", "worth"} if sure else set())
    assert (collection.load_codes().sure, collection.load_codes().knows_uncertainty) == (sure, sure > 0)
    unsure = [item.uncertainty for item in collection.items().values()]
    assert unsure == pytest.approx(codes.image_uncertainty.tolist(), abs=1e-6)


def test_a_collection_of_the_first_version_opens_without_its_uncertainties(collection):
    """Its codes had a number per bit, and its images their mean, which was no probability."""
    codes, file = collection.load_codes(), collection.path / "collection.json"
    arrays = {"bits": codes.bits, "ids": codes.ids, "uncertainty": np.full((3, 12), 7.5, np.float32)}
    save_arrays(collection.codes_file, "dmuh codes", 1, arrays, {"n_bits": 12, "of": "d1e5"})
    about = read_document(file, "dmuh collection")
    assert about.pop("version") == 2
    write_document(file, "dmuh collection", about | {"codes": saved_checksum(collection.codes_file)})
    assert collection.load_codes() == codes.plain()
    assert [item.uncertainty for item in collection.items().values()] == [None] * 3
    assert collection.items([1])[1].labels == ["Straße", "sky"]
    assert collection.uncertainty_percentiles() is None
    assert collection.build_index().search(codes, 1, ranking="hamming").distances.tolist() == [[0]] * 3


@pytest.mark.parametrize("name", range(4))
def test_any_file_name_comes_back(tmp_path, name):
    collection = Collection(tmp_path / "collection")
    collection.write(make_codes([name], uncertainty=False), make_dataset(tmp_path), tmp_path, "x")
    item = collection.items()[name]
    assert (item.path, item.labels, item.uncertainty) == (str(tmp_path / NAMES[name]), LABELS[name], None)
    assert collection.uncertainty_percentiles() is None


def test_a_file_name_that_is_not_unicode_comes_back(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    collection = Collection(tmp_path / "collection")
    collection.write(make_codes([0]), Dataset("x", [path], np.ones((1, 1), np.uint8), ("a",)), tmp_path, "x")
    assert collection.items()[0].path == str(path)


def test_an_image_that_is_no_file_has_no_path_made_up_for_it(tmp_path):
    dataset = Dataset("x", np.zeros((2, 4, 4), np.uint8), np.ones((2, 1), np.uint8), ("a",))
    collection = Collection(tmp_path / "collection")
    collection.write(make_codes([0, 1]), dataset, tmp_path, "x")
    assert collection.items()[1].path == "image 1"


def test_the_index_is_built_and_read_back(collection):
    built = collection.build_index()
    queries = make_codes([0, 1, 3])
    found = collection.load_index().search(queries, 1, ranking="hamming")
    assert found.distances.tolist() == [[0], [0], [0]]
    assert found.ids.tolist() == [[0], [1], [3]]
    softly, kept = collection.load_index().search(queries, 3), HammingIndex().add(queries.stored()).search(queries, 3)
    assert softly.distances.dtype == np.float32
    np.testing.assert_array_equal(softly.distances, kept.distances)
    np.testing.assert_array_equal(softly.ids, kept.ids)
    assert built.ids.tolist() == [0, 1, 3]


def test_a_collection_that_was_written_again_has_no_index_of_its_old_codes(collection, tmp_path):
    collection.build_index()
    collection.write(make_codes([2], seed=1), make_dataset(tmp_path), tmp_path / "run", "d1e6")
    with pytest.raises(FormatError, match="an index of other codes: make it anew by dmuh index"):
        collection.load_index()
    assert collection.build_index().ids.tolist() == collection.load_index().ids.tolist() == [2]


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_collection_is_refused(collection, tmp_path, name):
    other = Collection(tmp_path / "other")
    other.write(make_codes([0, 1, 2], seed=1), make_dataset(tmp_path), tmp_path / "run", "d1e5")
    for made in (collection, other):
        made.build_index()
    shutil.copy(other.path / name, collection.path / name)
    with pytest.raises(FormatError):
        (collection.load_codes(), collection.load_index(), collection.items(), collection.items([0]))


@pytest.mark.parametrize("name", FILES)
def test_files_that_dmuh_did_not_write_are_not_replaced(tmp_path, name):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / name).write_text("years of work")
    with pytest.raises(DataError, match=f"thesis has {name}, but not as this dmuh writes"):
        Collection(folder).write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")
    assert [file.read_text() for file in folder.iterdir()] == ["years of work"]


def test_a_collection_that_was_not_written_to_its_end_is_refused_and_can_be_written_again(tmp_path):
    program = """
import os, sys
from pathlib import Path
from dmuh import collection
from test_collection import make_codes, make_dataset
collection.file_digest = lambda _: os.kill(os.getpid(), 9)  # codes and items are written by then
folder = Path(sys.argv[1])
collection.Collection(folder / "collection").write(make_codes([0]), make_dataset(folder), folder, "x")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    made = Collection(tmp_path / "collection")
    with pytest.raises(FormatError, match="was not written to its end: index the images again"):
        made.load_codes()
    made.write(make_codes([0, 3]), make_dataset(tmp_path), tmp_path, "x")
    assert list(made.items()) == [0, 3]


def test_a_missing_index_says_how_to_make_it(collection):
    with pytest.raises(DataError, match=f"{collection.path} holds codes but no index: make it by dmuh index"):
        collection.load_index()


@pytest.mark.parametrize("action", ["build_index", "load_index", "load_codes", "model", "items"])
def test_a_missing_collection_says_how_to_make_it(tmp_path, action):
    collection = Collection(tmp_path / "nothing")
    assert not collection.exists
    with pytest.raises(DataError, match="nothing holds no encoded images: make it by dmuh index"):
        getattr(collection, action)()
