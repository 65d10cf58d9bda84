import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import earlier
from dmuh.catalogue import Catalogue
from dmuh.codes import Codes
from dmuh.collection import Collection, Item
from dmuh.datasets import Dataset, multi_hot
from dmuh.errors import DataError, FormatError, InputError, RunError
from dmuh.files import saved_metadata
from dmuh.index import HammingIndex
from graded import graded_codes

NAMES = ["a/1.png", "b/Füße 日本.jpg", 'b/quote " and \u2028 line\nbreak.png', "c/4.png"]
CLASSES = ("Straße", "sea", "sky")
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
    assert collection.load_codes() == codes.stored()
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


def test_a_few_items_are_read_without_the_others(collection, monkeypatch):
    """In a large collection a row that is returned is checked; another that was altered is noticed when it is read."""
    expected = collection.items([1])
    monkeypatch.setattr("dmuh.catalogue.integrity._SEALED", 0)
    with sqlite3.connect(collection.catalogue_file) as other:
        other.execute("UPDATE images SET metadata = '{}' WHERE id = 0")
    other.close()
    assert collection.items([1]) == expected
    for ids in ([0], [1, 0], None):
        with pytest.raises(FormatError, match="a checksum does not fit"):
            collection.items(ids)


def test_a_small_collection_is_checked_whole(collection):
    with sqlite3.connect(collection.catalogue_file) as other:
        other.execute("UPDATE images SET metadata = '{}' WHERE id = 0")
    other.close()
    with pytest.raises(FormatError, match=r"catalogue\.sqlite cannot be used as a catalogue: .*altered"):
        collection.items([1])


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_levels_are_kept_and_numbers_per_bit_are_not(tmp_path, sure):
    codes, collection = make_codes([0, 1, 3], sure=sure), Collection(tmp_path / "collection")
    collection.write(codes, make_dataset(tmp_path), tmp_path / "run", "d1e5")
    assert (collection.load_codes().sure, collection.load_codes().knows_uncertainty) == (sure, sure > 0)
    unsure = [item.uncertainty for item in collection.items().values()]
    assert unsure == pytest.approx(codes.image_uncertainty.tolist(), abs=1e-6)


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
    assert collection.load_index().ids.tolist() == [2]
    assert collection.build_index().ids.tolist() == collection.load_index().ids.tolist() == [2]


@pytest.mark.parametrize("damage", ["of another collection", "cut", "altered"])
def test_an_index_that_is_not_the_collections_is_made_again(collection, tmp_path, damage, caplog):
    other = Collection(tmp_path / "other")
    other.write(make_codes([0, 1, 2], seed=1), make_dataset(tmp_path), tmp_path / "run", "d1e5")
    for made in (collection, other):
        made.build_index()
    content = bytearray(collection.index_file.read_bytes())
    content[-1] ^= 1
    {
        "of another collection": lambda: shutil.copy(other.index_file, collection.index_file),
        "cut": lambda: collection.index_file.write_bytes(content[:-9]),
        "altered": lambda: collection.index_file.write_bytes(content),
    }[damage]()
    queries = make_codes([0, 1, 3])
    assert collection.load_index().search(queries, 1, ranking="hamming").ids.tolist() == [[0], [1], [3]]
    assert ("searched is what the catalogue has" in caplog.text) == (damage != "of another collection")


@pytest.mark.parametrize("name", ["catalogue.sqlite", "index.safetensors"])
def test_files_that_dmuh_did_not_write_are_not_replaced(tmp_path, name):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / name).write_text("years of work")
    with pytest.raises(DataError, match=f"thesis has {name}, but not as this dmuh writes"):
        Collection(folder).write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")
    assert [file.read_text() for file in folder.iterdir()] == ["years of work"]


@pytest.mark.parametrize("name", earlier.FILES)
def test_files_of_others_by_earlier_names_stay(tmp_path, name):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / name).write_text("years of work")
    made = Collection(folder)
    assert not made.exists
    made.write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")
    assert list(made.items()) == [0]
    assert (folder / name).read_text() == "years of work"


def test_an_index_of_ones_own_is_not_replaced(tmp_path):
    HammingIndex().add(make_codes([5])).save(tmp_path / "index.safetensors")
    with pytest.raises(DataError, match=r"has index\.safetensors, but not as this dmuh writes"):
        Collection(tmp_path).write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")


# -- images that come and go -----------------------------------------------------------------------------------------


def some_items(folder, *names):
    return [Item(0, str(folder / name), ["sky"], 0.25, {"year": "9"}) for name in names]


def test_images_are_added_and_removed(collection, tmp_path):
    built = collection.build_index()
    before = collection.index_file.read_bytes()
    digests = {collection.codes_digest()}
    new = make_codes([0, 1], seed=7)
    assert collection.add(new, some_items(tmp_path, "d/5.png", "d/6.png")) == [4, 5]
    digests.add(collection.codes_digest())
    collection.remove([1, 4])
    digests.add(collection.codes_digest())
    assert len(digests) == 3
    assert list(collection.items()) == [0, 3, 5]
    added = collection.items([5])[5]
    assert added == Item(5, str(tmp_path / "d/6.png"), ["sky"], 0.25, {"year": "9"})
    assert collection.index_file.read_bytes() == before, "a few changes are not worth writing it"
    index = collection.load_index()
    assert index.ids.tolist() == collection.load_codes().ids.tolist() == [0, 3, 5]
    queries = Codes.concatenated([make_codes([0, 1, 3]), new.with_ids([8, 9])])
    fresh = HammingIndex().add(collection.load_codes())
    for ranking in ("hamming", "soft"):
        one, other = index.search(queries, 3, ranking=ranking), fresh.search(queries, 3, ranking=ranking)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.distances, other.distances)
    assert collection.build_index().ids.tolist() == [0, 3, 5]
    assert collection.load_index().ids.tolist() == [0, 3, 5]
    assert built.ids.tolist() == [0, 1, 3]
    with pytest.raises(InputError, match="has no image 99"):
        collection.remove([0, 99])
    assert list(collection.items()) == [0, 3, 5], "all or none"


def test_many_changes_are_written_to_the_index(collection, tmp_path, monkeypatch):
    monkeypatch.setattr("dmuh.catalogue.index_file._FEW", 3)
    collection.build_index()
    state = saved_metadata(collection.index_file)["of"]
    collection.add(make_codes([0, 1], seed=7), some_items(tmp_path, "d/5.png", "d/6.png"))
    collection.remove([4])
    assert saved_metadata(collection.index_file)["of"] == state
    collection.add(make_codes([0]), some_items(tmp_path, "d/7.png"))
    assert saved_metadata(collection.index_file)["of"] == state.replace(" 0", " 4")
    with collection.reading() as catalogue:
        assert catalogue.changed_since(state) is None, "those that the file has are forgotten"
        assert catalogue.changed_since(catalogue.state) == []
    assert collection.load_index().ids.tolist() == [0, 1, 3, 5, 6]
    expected = [item.uncertainty for item in collection.items().values()]
    assert collection.uncertainty_percentiles()[0] == pytest.approx(min(expected), abs=1e-6)


def test_an_index_file_from_a_backup_is_not_trusted_beyond_what_is_known(collection, tmp_path, monkeypatch):
    collection.build_index()
    old = collection.index_file.read_bytes()
    collection.add(make_codes([0, 1], seed=7), some_items(tmp_path, "d/5.png", "d/6.png"))
    collection.build_index()
    collection.remove([0])
    collection.index_file.write_bytes(old)
    assert collection.load_index().ids.tolist() == [1, 3, 4, 5]


def test_images_from_elsewhere_keep_their_whole_path(collection, tmp_path):
    elsewhere = some_items(Path("/somewhere/else"), "1.png")
    (id_,) = collection.add(make_codes([0]), elsewhere)
    assert collection.items([id_])[id_].path == "/somewhere/else/1.png"
    assert collection.items([0])[0].path == str(tmp_path / NAMES[0])
    with pytest.raises(DataError, match=r"are files below .*, but 'image 7' is none"):
        collection.add(make_codes([0]), [Item(0, "image 7", [], None)])


def test_what_was_removed_and_decided_is_not_lost_by_writing_anew(collection, tmp_path):
    collection.remove([1])
    again = (make_codes([0]), make_dataset(tmp_path), tmp_path, "x")
    with pytest.raises(DataError, match="has 1 removals, which would be lost: bring it up to date by --sync, or give"):
        collection.write(*again)
    assert list(collection.items()) == [0, 3]


def test_a_service_of_a_folder_is_not_replaced(tmp_path):
    with Catalogue(tmp_path / "catalogue.sqlite", 12) as catalogue:
        catalogue.note(source="folder")
    assert not Collection(tmp_path).exists
    with pytest.raises(DataError, match="is where a service keeps its catalogue: choose another folder"):
        Collection(tmp_path).write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")


def test_a_full_disk_leaves_nothing(tmp_path):
    made, limits = Collection(tmp_path / "collection"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # the kernel refuses all beyond
    try:
        with pytest.raises(DataError, match=r"no room left for .*catalogue\.sqlite: make room and give the same"):
            made.write(make_codes([0]), make_dataset(tmp_path), tmp_path, "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in made.path.iterdir()] == [".lock"]


def test_one_process_changes_and_others_read(collection):
    collection.build_index()
    with collection.changing() as catalogue:
        with pytest.raises(RunError, match=r"another process serves or changes .*: end it, or wait for it"):
            collection.remove([0])
        catalogue.remove(3)
        assert collection.load_index().ids.tolist() == [0, 1]


KILLED = """
import os, sys
from pathlib import Path
from dmuh.catalogue import bulk, catalogue, index_file
from dmuh.collection import Collection
from test_collection import make_codes, make_dataset, some_items

def killed(*_): os.kill(os.getpid(), 9)

folder, at = Path(sys.argv[1]), sys.argv[2]
made = Collection(folder / "collection")
index_file._FEW = 0
match at:
    case "write": bulk.ChecksumFile = killed
    case "add": catalogue.note_changes = killed
    case "after add": Collection._write_index = killed
    case "index": catalogue.Catalogue.forget_changes = killed
if at == "write":
    made.write(make_codes([0], seed=9), make_dataset(folder), folder, "x")
else:
    made.add(make_codes([0, 1], seed=7), some_items(folder, "d/5.png", "d/6.png"))
"""


@pytest.mark.parametrize(("at", "ids"), [
    ("write", [0, 1, 3]), ("add", [0, 1, 3]), ("after add", [0, 1, 3, 4, 5]), ("index", [0, 1, 3, 4, 5]),
])  # fmt: skip
def test_whatever_is_killed_leaves_a_folder_that_opens(collection, tmp_path, at, ids):
    collection.build_index()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), at], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(collection.items()) == collection.load_codes().ids.tolist() == ids
    assert collection.load_index().ids.tolist() == ids
    collection.add(make_codes([0]), some_items(tmp_path, "d/7.png"))
    assert collection.load_index().ids.tolist() == [*ids, max(ids) + 1]
    assert not list(collection.path.glob(".catalogue*.dmuh-*")) or at == "write"
    if at == "write":
        collection.write(make_codes([0], seed=9), make_dataset(tmp_path), tmp_path, "x")
        assert not list(collection.path.glob(".catalogue*.dmuh-*"))


def test_a_missing_index_says_how_to_make_it(collection):
    with pytest.raises(DataError, match=f"{collection.path} holds codes but no index: make it by dmuh index"):
        collection.load_index()


@pytest.mark.parametrize("action", ["build_index", "load_index", "load_codes", "model", "items"])
def test_a_missing_collection_says_how_to_make_it(tmp_path, action):
    collection = Collection(tmp_path / "nothing")
    assert not collection.exists
    with pytest.raises(DataError, match="nothing holds no encoded images: make it by dmuh index"):
        getattr(collection, action)()
