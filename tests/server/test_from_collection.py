"""An index that is served: by its own catalogue, or by one that a service keeps elsewhere and that follows it."""

import dataclasses
import logging
import os
import shutil

import numpy as np
import pytest
from serving import add_new

from commands import dmuh
from dmuh.catalogue import Entry, StateFolder, remove_outdated
from dmuh.collection import Collection
from dmuh.collection.serving import serve_collection
from dmuh.datasets import Dataset
from dmuh.datasets.folder import load_folder
from dmuh.errors import DataError, InputError, RequestError
from dmuh.server.images.files import ImageFiles


@pytest.fixture
def collection(folder, digit_hasher, tmp_path):
    made = Collection(tmp_path / "index")
    data = load_folder(folder)
    made.write(digit_hasher.encode(data.images), data, tmp_path / "run", digit_hasher.digest)
    return made


def test_a_collection_is_served_as_it_is(collection, folder, digit_hasher):
    before = collection.catalogue_file.read_bytes()
    with StateFolder(collection.path).open(digit_hasher) as catalogue:
        assert serve_collection(catalogue, collection, digit_hasher) == folder.resolve()
        catalogue.remove(7)
    assert len(before) == collection.catalogue_file.stat().st_size, "nothing was copied"
    assert 7 not in collection.items()
    assert len(collection.load_codes()) == 19


def test_a_collection_is_taken_over_once(collection, folder, digit_hasher, tmp_path):
    state = StateFolder(tmp_path / "state")
    with state.open(digit_hasher) as catalogue:
        assert serve_collection(catalogue, collection, digit_hasher) == folder.resolve()
        assert catalogue.labels() == {"ones": 10, "zeros": 10}
        codes = digit_hasher.encode(load_folder(folder).images)
        stored = catalogue.codes()
        assert stored.ids.tolist() == list(range(20))
        np.testing.assert_array_equal(stored.levels, codes.levels)
        known = [row.uncertainty for row in catalogue.listed("id", 20)]
        assert known == pytest.approx(codes.image_uncertainty, abs=1e-6)  # of the exact bits, not of their levels
        assert catalogue.identical(int(codes.contents[4])) == [4]
        catalogue.remove(7)
    with state.open(digit_hasher) as catalogue:
        assert serve_collection(catalogue, collection, digit_hasher) == folder.resolve()
        assert len(catalogue) == 19
    assert len(collection.items()) == 20


@pytest.mark.parametrize("where", ["in the index", "elsewhere"])
def test_what_was_synced_since_is_taken_up(folder, digit_run, digit_hasher, tmp_path, where):
    made = Collection(tmp_path / "index")
    dmuh("index", digit_run.path, folder, "--out", made.path)
    state = StateFolder(made.path if where == "in the index" else tmp_path / "state")
    with state.open(digit_hasher) as catalogue:
        serve_collection(catalogue, made, digit_hasher)
        catalogue.remove(7)
        catalogue.add([Entry("mine.png", added=True)], digit_hasher.encode(folder / "ones" / "00.png"))
        before = {path: id_ for path, (id_, _) in catalogue.files().items()}
    (folder / "ones" / "00.png").unlink()
    shutil.copy(folder / "zeros" / "02.png", folder / "ones" / "01.png")
    shutil.copy(folder / "zeros" / "03.png", folder / "new.png")
    dmuh("index", made.path, "--sync")
    (state.added / "mine.png").write_text("an upload")
    with state.open(digit_hasher) as catalogue:
        serve_collection(catalogue, made, digit_hasher)
        after = {path: id_ for path, (id_, _) in catalogue.files().items()}
        assert after.keys() == (before.keys() | {"new.png"}) - {"ones/00.png"}
        assert {path for path in after if after[path] != before.get(path)} == {"new.png", "ones/01.png"}
        row = catalogue.row(after["ones/01.png"])
        assert row.code == digit_hasher.encode(folder / "zeros" / "02.png").bits[0].tobytes()
        assert len(catalogue) == 20
        assert catalogue.added_files() == {"mine.png"}


def index_of(images, hasher, path):
    made = Collection(path)
    data = Dataset("images", images, np.zeros((len(images), 0), np.uint8), ())
    made.write(hasher.encode(images), data, path / "run", hasher.digest)
    return made


def test_a_collection_follows_no_links_out_of_its_folder(folder, digit_hasher, tmp_path, caplog):
    linked = tmp_path / "linked"
    (linked / "real").mkdir(parents=True)
    shutil.copy(folder / "ones" / "00.png", linked / "real" / "own.png")
    (linked / "inside.png").symlink_to(linked / "real" / "own.png")
    (linked / "outside.png").symlink_to(folder / "ones" / "01.png")
    (linked / "zeros").symlink_to(folder / "zeros")
    names = ["real/own.png", "inside.png", "outside.png", "zeros/00.png"]
    made = index_of([linked / name for name in names], digit_hasher, tmp_path / "index")
    with StateFolder(made.path).open(digit_hasher) as catalogue, caplog.at_level(logging.WARNING):
        assert serve_collection(catalogue, made, digit_hasher) == linked
        assert f"images of {made.path} are links out of {linked}, such as" in caplog.text
        files = ImageFiles(linked, tmp_path / "added", None)
        shown = {}
        for row in catalogue.listed("id", 4):
            try:
                files._open(row).close()
                shown[os.fsdecode(row.path)] = "shown"
            except RequestError as error:
                shown[os.fsdecode(row.path)] = str(error)
        files.close()
    out = "the file of this image is not in its collection any more"
    assert shown == dict(zip(names, ["shown", "shown", out, out], strict=True))


def test_a_collection_of_nothing_but_links_out_of_it_says_what_to_index(folder, digit_hasher, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for n, file in enumerate(sorted(folder.rglob("*.png"))):
        (linked / f"{n}.png").symlink_to(file)
    made = index_of(sorted(linked.iterdir()), digit_hasher, tmp_path / "index")
    with (
        StateFolder(made.path).open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=r"are links that lead out of .*linked, such as .*: index the folder that they"),
    ):
        serve_collection(catalogue, made, digit_hasher)
    assert made.exists


def test_a_collection_whose_folder_is_a_link_is_served(folder, digit_hasher, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    made = index_of(load_folder(tmp_path / "link").images, digit_hasher, tmp_path / "index")
    with StateFolder(made.path).open(digit_hasher) as catalogue:
        assert serve_collection(catalogue, made, digit_hasher) == tmp_path / "link"
        assert len(catalogue) == 20


def test_a_collection_by_a_path_that_leads_up_again_is_served(folder, digit_hasher, tmp_path):
    (tmp_path / "here").mkdir()
    images = [tmp_path / "here" / ".." / "photos" / "ones" / "00.png", folder / "zeros" / "00.png"]
    made = index_of(images, digit_hasher, tmp_path / "index")
    with StateFolder(made.path).open(digit_hasher) as catalogue:
        assert serve_collection(catalogue, made, digit_hasher) == folder
        assert sorted(catalogue.files()) == ["ones/00.png", "zeros/00.png"]


def test_a_collection_with_names_that_are_not_unicode_is_served(folder, digit_hasher, tmp_path):
    strange = shutil.copytree(folder / "ones", tmp_path / os.fsdecode(b"caf\xe9"))
    made = index_of(sorted(strange.iterdir()), digit_hasher, tmp_path / "index")
    for _ in range(2):
        with StateFolder(made.path).open(digit_hasher) as catalogue:
            assert serve_collection(catalogue, made, digit_hasher) == strange
            assert len(catalogue) == 10


@pytest.mark.parametrize("name", ["/a\0b.png", "/\ud800.png"])
def test_a_name_that_no_file_can_have_is_refused(collection, digit_hasher, tmp_path, name):
    items = [dataclasses.replace(item, path=name) if item.id == 7 else item for item in collection.items().values()]
    before = collection.catalogue_file.read_bytes()
    with pytest.raises(DataError, match=r"an image has a name that no file can have, .*: index it by another one"):
        collection.write_items(collection.load_codes(), items, tmp_path / "run", digit_hasher.digest)
    assert collection.catalogue_file.read_bytes() == before


def test_a_collection_that_names_too_few_images_is_refused(collection, digit_hasher, tmp_path):
    items = list(collection.items().values())[1:]
    with pytest.raises(InputError, match="items must have one entry for each code"):
        collection.write_items(collection.load_codes(), items, tmp_path / "run", digit_hasher.digest)


def test_images_that_are_no_files_keep_their_names(digits, digit_hasher, tmp_path):
    made = Collection(tmp_path / "index")
    made.write(digit_hasher.encode(digits.images[:3]), digits, tmp_path / "run", digit_hasher.digest)
    with StateFolder(made.path).open(digit_hasher) as catalogue:
        serve_collection(catalogue, made, digit_hasher)
        assert sorted(catalogue.files()) == ["image 0", "image 1", "image 2"]


def test_another_model_or_index_is_refused(collection, folder, digit_hasher, shape_hasher, tmp_path):
    with StateFolder(tmp_path / "state").open(shape_hasher) as catalogue:
        with pytest.raises(DataError, match="made by another model"):
            serve_collection(catalogue, collection, shape_hasher)
        add_new(catalogue, folder, shape_hasher)
    with pytest.raises(DataError, match="holds codes of another model"):
        StateFolder(tmp_path / "state").open(digit_hasher)
    with StateFolder(tmp_path / "other").open(digit_hasher) as catalogue:
        serve_collection(catalogue, collection, digit_hasher)
        with pytest.raises(DataError, match="is of an index, not of a folder"):
            remove_outdated(catalogue, folder)
        data = load_folder(folder)
        fewer = Dataset(data.name, data.images[:5], data.labels[:5], data.classes)
        collection.write(digit_hasher.encode(fewer.images), fewer, tmp_path, digit_hasher.digest)
        with pytest.raises(
            DataError, match=r"was indexed again since it was served, or .* is of another index: give another --state, "
        ):
            serve_collection(catalogue, collection, digit_hasher)
        assert len(catalogue) == 20


def test_a_catalogue_of_a_folder_serves_no_index(collection, folder, digit_hasher, tmp_path):
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
        with pytest.raises(DataError, match="is of a folder, not of an index: give --images, or another --state"):
            serve_collection(catalogue, collection, digit_hasher)


def test_a_collection_that_is_none_says_how_to_make_it(digit_hasher, tmp_path):
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue, pytest.raises(DataError, match="dmuh index"):
        serve_collection(catalogue, Collection(tmp_path / "nothing"), digit_hasher)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_a_collection_is_taken_over_with_its_sure_bits(folder, digit_hasher, tmp_path, sure):
    made, data = Collection(tmp_path / "index"), load_folder(folder)
    codes = digit_hasher.encode(data.images, sure=sure)
    made.write(codes, data, tmp_path / "run", digit_hasher.digest)
    with StateFolder(made.path).open(digit_hasher) as catalogue:
        serve_collection(catalogue, made, digit_hasher)
        assert catalogue.sure == sure
        known = [row.uncertainty for row in catalogue.listed("id", 20)]
        assert known == pytest.approx(codes.image_uncertainty, abs=1e-6)
