"""Where a catalogue's images come from: a folder that changes, or a collection."""

import logging
import os
import shutil

import numpy as np
import pytest

from dmuh.collection import Collection
from dmuh.datasets import Dataset
from dmuh.datasets.folder import load_folder, write_folder
from dmuh.errors import DataError
from dmuh.images import BadImages
from dmuh.server.filling import Place, compare_folder, take_collection, take_images


@pytest.fixture
def folder(photos, tmp_path):
    return shutil.copytree(photos, tmp_path / "photos")


def paths(catalogue):
    return sorted(catalogue.files())


def take(catalogue, root, hasher):
    bad = BadImages()
    new = compare_folder(catalogue, root)
    take_images(catalogue, root, new, hasher, bad)
    return [str(image.path) for image in new], bad


def test_a_folder_is_taken_once_and_its_changes_later(folder, digit_hasher, tmp_path):
    (folder / "loose.png").write_bytes((folder / "ones" / "00.png").read_bytes())
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        assert len(take(catalogue, folder, digit_hasher)[0]) == 21
        assert catalogue.labels() == {"ones": 10, "zeros": 10}
        row = catalogue.row(catalogue.id_of("ones/03.png", added=False))
        assert row.code == digit_hasher.encode(folder / "ones" / "03.png").bits[0].tobytes()
        assert take(catalogue, folder, digit_hasher)[0] == []
        (folder / "ones" / "03.png").unlink()
        (folder / "ones" / "04.png").write_bytes((folder / "zeros" / "04.png").read_bytes())
        os.utime(folder / "ones" / "04.png", (1, 1))
        shutil.copy(folder / "ones" / "05.png", folder / "new.png")
        before = catalogue.id_of("ones/04.png", added=False)
        new, _ = take(catalogue, folder, digit_hasher)
        assert sorted(new) == ["new.png", "ones/04.png"]
        assert "ones/03.png" not in paths(catalogue)
        assert catalogue.id_of("ones/04.png", added=False) != before  # browsers keep what an id showed
        assert len(catalogue) == 21


def test_what_was_deleted_through_the_service_does_not_come_back(folder, digit_hasher, tmp_path):
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
        catalogue.remove(catalogue.id_of("ones/00.png", added=False))
        assert take(catalogue, folder, digit_hasher)[0] == []
        assert len(catalogue) == 19


def test_links_out_of_the_folder_and_broken_images_are_left_out(folder, digit_hasher, tmp_path, caplog):
    (tmp_path / "secret.png").write_bytes((folder / "ones" / "00.png").read_bytes())
    (folder / "ones" / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "ones" / "inside.png").symlink_to(folder / "zeros" / "00.png")
    (folder / "ones" / "broken.png").write_text("no image")
    with Place(tmp_path / "state").open(digit_hasher) as catalogue, caplog.at_level(logging.WARNING):
        _, bad = take(catalogue, folder, digit_hasher)
        assert "1 links lead out of" in caplog.text
        assert len(bad) == 1
        assert "ones/inside.png" in paths(catalogue)
        assert not {"ones/link.png", "ones/broken.png"} & set(paths(catalogue))


def test_a_folder_name_that_is_not_unicode_is_a_label_all_the_same(folder, digit_hasher, tmp_path):
    strange = folder / os.fsdecode(b"caf\xe9")
    shutil.copytree(folder / "ones", strange)
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
        assert catalogue.labels()["caf\ufffd"] == 10


@pytest.fixture
def collection(folder, digit_hasher, tmp_path):
    made = Collection(tmp_path / "index")
    data = load_folder(folder)
    made.write(digit_hasher.encode(data.images), data, tmp_path / "run", digit_hasher.digest)
    return made


def test_a_collection_is_taken_over_once(collection, folder, digit_hasher):
    with Place(collection.path).open(digit_hasher) as catalogue:
        assert take_collection(catalogue, collection, digit_hasher) == folder.resolve()
        assert catalogue.labels() == {"ones": 10, "zeros": 10}
        assert catalogue.codes().ids.tolist() == list(range(20))
        catalogue.remove(7)
    with Place(collection.path).open(digit_hasher) as catalogue:
        assert take_collection(catalogue, collection, digit_hasher) == folder.resolve()
        assert len(catalogue) == 19


def test_a_collection_through_links_knows_where_its_files_are(folder, digit_hasher, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for n, file in enumerate(sorted(folder.rglob("*.png"))):
        (linked / f"{n}.png").symlink_to(file)
    made = Collection(tmp_path / "index")
    images = sorted(linked.iterdir())
    data = Dataset("images", images, np.zeros((20, 0), np.uint8), ())
    made.write(digit_hasher.encode(images), data, tmp_path / "run", digit_hasher.digest)
    with Place(made.path).open(digit_hasher) as catalogue:
        root = take_collection(catalogue, made, digit_hasher)
        assert {root / path for path in catalogue.files()} == {path.resolve() for path in images}


def test_images_that_are_no_files_keep_their_names(digits, digit_hasher, tmp_path):
    made = Collection(tmp_path / "index")
    made.write(digit_hasher.encode(digits.images[:3]), digits, tmp_path / "run", digit_hasher.digest)
    with Place(made.path).open(digit_hasher) as catalogue:
        take_collection(catalogue, made, digit_hasher)
        assert sorted(catalogue.files()) == ["image 0", "image 1", "image 2"]


def test_another_model_or_index_is_refused(collection, folder, digit_hasher, shape_hasher, tmp_path):
    with Place(tmp_path / "state").open(shape_hasher) as catalogue:
        with pytest.raises(DataError, match="made by another model"):
            take_collection(catalogue, collection, shape_hasher)
        take(catalogue, folder, shape_hasher)
    with pytest.raises(DataError, match="holds codes of another model"):
        Place(tmp_path / "state").open(digit_hasher)
    with Place(collection.path).open(digit_hasher) as catalogue:
        take_collection(catalogue, collection, digit_hasher)
        with pytest.raises(DataError, match="is of an index, not of a folder"):
            compare_folder(catalogue, folder)
        data = load_folder(folder)
        fewer = Dataset(data.name, data.images[:5], data.labels[:5], data.classes)
        collection.write(digit_hasher.encode(fewer.images), fewer, tmp_path, digit_hasher.digest)
        with pytest.raises(DataError, match="was indexed again since it was served"):
            take_collection(catalogue, collection, digit_hasher)


@pytest.mark.parametrize(("name", "sentence"), [("nowhere", "does not exist"), ("file", "is not a folder")])
def test_a_folder_that_is_none_is_refused(digit_hasher, tmp_path, name, sentence):
    (tmp_path / "file").write_text("")
    with (
        Place(tmp_path / "state").open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=sentence),
    ):
        compare_folder(catalogue, tmp_path / name)


def test_files_that_a_crash_left_behind_are_cleared_away(digit_hasher, tmp_path):
    place = Place(tmp_path / "state")
    place.open(digit_hasher).close()
    (place.added / "orphan.png").write_bytes(b"half")
    place.open(digit_hasher).close()
    assert list(place.added.iterdir()) == []


def test_a_folder_is_written_whole_and_once(digits, tmp_path):
    root = tmp_path / "images"
    positions = np.array([0, 70, 200])
    written = write_folder(digits, positions, root)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*.png")) == [
        "0/00000.png", "1/00070.png", "7/00200.png"
    ]  # fmt: skip
    again = load_folder(root)
    assert [again.label_text(n) for n in range(3)] == ["0", "1", "7"]
    (root / "0" / "00000.png").unlink()
    assert write_folder(digits, positions, root).path(70) == written.path(70) == str(root / "1" / "00070.png")
    assert not (root / "0" / "00000.png").exists()  # what is there is not touched


def test_a_collection_that_is_none_says_how_to_make_it(digit_hasher, tmp_path):
    with Place(tmp_path / "state").open(digit_hasher) as catalogue, pytest.raises(DataError, match="dmuh index"):
        take_collection(catalogue, Collection(tmp_path / "nothing"), digit_hasher)
    assert not (tmp_path / "nothing").exists()
