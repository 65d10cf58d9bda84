"""Where a catalogue's images come from: a folder that changes, or a collection."""

import dataclasses
import logging
import os
import shutil

import numpy as np
import pytest
from serving import client_of, picture

from commands import refused
from dmuh.collection import Collection
from dmuh.datasets import Dataset
from dmuh.datasets.folder import load_folder, write_folder
from dmuh.errors import ConfigError, DataError
from dmuh.images import Reading
from dmuh.server.filling import Place, compare_folder, take_collection, take_images


def paths(catalogue):
    return sorted(catalogue.files())


def take(catalogue, root, hasher):
    reading = Reading(on_bad_image="skip")
    new = compare_folder(catalogue, root)
    take_images(catalogue, root, new, hasher, reading)
    return [str(image.path) for image in new], reading.bad


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
    with Place(made.path).open(digit_hasher) as catalogue, caplog.at_level(logging.WARNING):
        assert take_collection(catalogue, made, digit_hasher) == linked
        assert sorted(catalogue.files()) == ["inside.png", "real/own.png"]
        assert catalogue.codes().ids.tolist() == [0, 1]
        assert f"2 images of {made.path} are links out of {linked} and are passed over" in caplog.text


def test_a_collection_of_nothing_but_links_out_of_it_says_what_to_index(folder, digit_hasher, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for n, file in enumerate(sorted(folder.rglob("*.png"))):
        (linked / f"{n}.png").symlink_to(file)
    made = index_of(sorted(linked.iterdir()), digit_hasher, tmp_path / "index")
    with (
        Place(made.path).open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=r"are links that lead out of .*linked, such as .*: index the folder that they"),
    ):
        take_collection(catalogue, made, digit_hasher)
    assert made.exists


def test_a_collection_whose_folder_is_a_link_is_served(folder, digit_hasher, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    made = index_of(load_folder(tmp_path / "link").images, digit_hasher, tmp_path / "index")
    with Place(made.path).open(digit_hasher) as catalogue:
        assert take_collection(catalogue, made, digit_hasher) == tmp_path / "link"
        assert len(catalogue) == 20


def test_a_collection_by_a_path_that_leads_up_again_is_served(folder, digit_hasher, tmp_path):
    (tmp_path / "here").mkdir()
    images = [tmp_path / "here" / ".." / "photos" / "ones" / "00.png", folder / "zeros" / "00.png"]
    made = index_of(images, digit_hasher, tmp_path / "index")
    with Place(made.path).open(digit_hasher) as catalogue:
        assert take_collection(catalogue, made, digit_hasher) == folder
        assert sorted(catalogue.files()) == ["ones/00.png", "zeros/00.png"]


def test_a_collection_with_names_that_are_not_unicode_is_served(folder, digit_hasher, tmp_path):
    strange = shutil.copytree(folder / "ones", tmp_path / os.fsdecode(b"caf\xe9"))
    made = index_of(sorted(strange.iterdir()), digit_hasher, tmp_path / "index")
    for _ in range(2):
        with Place(made.path).open(digit_hasher) as catalogue:
            assert take_collection(catalogue, made, digit_hasher) == strange
            assert len(catalogue) == 10


@pytest.mark.parametrize("name", ["/a\0b.png", "/\ud800.png"])
def test_a_collection_with_a_name_that_no_file_can_have_is_refused(collection, digit_hasher, tmp_path, name):
    items = [dataclasses.replace(item, path=name) if item.id == 7 else item for item in collection.items().values()]
    collection.write_items(collection.load_codes(), items, tmp_path / "run", digit_hasher.digest)
    with (
        Place(collection.path).open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=r"has an image of a name that no file can have, .*: index it again"),
    ):
        take_collection(catalogue, collection, digit_hasher)


def test_a_collection_that_names_too_few_images_is_refused(collection, digit_hasher, tmp_path):
    items = list(collection.items().values())[1:]
    collection.write_items(collection.load_codes(), items, tmp_path / "run", digit_hasher.digest)
    with (
        Place(collection.path).open(digit_hasher) as catalogue,
        pytest.raises(DataError, match="has codes of images that it does not name: index the images again"),
    ):
        take_collection(catalogue, collection, digit_hasher)


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
        with pytest.raises(
            DataError, match=r"was indexed again since it was served, or .* is of another index: give another --state, "
        ):
            take_collection(catalogue, collection, digit_hasher)
        assert len(catalogue) == 20


@pytest.mark.parametrize(("name", "sentence"), [("nowhere", "does not exist"), ("file", "is not a folder")])
def test_a_folder_that_is_none_is_refused(digit_hasher, tmp_path, name, sentence):
    (tmp_path / "file").write_text("")
    with (
        Place(tmp_path / "state").open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=sentence),
    ):
        compare_folder(catalogue, tmp_path / name)


# -- files that are not the service's --------------------------------------------------------------------------------

OWN = "0f8fad5bd9cb469fa16570867728950e.png"


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_files_that_the_catalogue_does_not_know_are_set_aside_or_left(digit_hasher, tmp_path, caplog):
    place = Place(tmp_path / "state")
    place.open(digit_hasher).close()
    others = ["holiday.png", "0f8fad5bd9cb469fa16570867728950e.txt", ".hidden"]
    for name in [*others, OWN, f".{OWN}.dmuh-abcd1234.png"]:
        (place.added / name).write_text(name)
    (place.added / "folder").mkdir()
    (place.added / OWN.replace("0", "1")).symlink_to(tmp_path)
    place.open(digit_hasher).close()
    assert names(place.added) == sorted([*others, "folder", OWN.replace("0", "1")])
    assert names(place.set_aside) == [OWN]
    assert f"1 files in {place.added} are not in the catalogue and were moved to {place.set_aside}" in caplog.text
    assert f"5 files in {place.added} are not of this service and are left, such as " in caplog.text
    (place.added / OWN).write_text("another")
    place.open(digit_hasher).close()
    assert {file.read_text() for file in place.set_aside.iterdir()} == {OWN, "another"}


def test_a_catalogue_from_a_backup_costs_no_image(digit_hasher, folder, tmp_path):
    state = tmp_path / "state"
    place = Place(state)
    add = {"content": picture(), "headers": {"content-type": "image/png"}}
    with client_of(digit_hasher, folder, state) as client:
        client.post("/api/images", **add)
    kept = place.catalogue.read_bytes()
    with client_of(digit_hasher, folder, state) as client:
        answer = client.post("/api/images", **add).json()
        id_, later = answer["id"], answer["path"].removeprefix("added/")
    newest = place.catalogue.read_bytes()
    place.catalogue.write_bytes(kept)
    with client_of(digit_hasher, folder, state) as client:
        assert client.get("/api/about").json()["images"] == 21
    assert names(place.set_aside) == [later]
    assert (place.set_aside / later).read_bytes() == picture()
    place.catalogue.write_bytes(newest)
    with client_of(digit_hasher, folder, state) as client:
        assert client.get(f"/api/images/{id_}/file").content == picture()  # it is back
    assert names(place.set_aside) == []


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_its_catalogue_the_added_files_stay(digit_hasher, tmp_path, how):
    place = Place(tmp_path / "state")
    place.added.mkdir(parents=True)
    (place.added / OWN).write_text("an upload")
    if how == "empty":
        place.catalogue.touch()
    before = names(place.path)
    with pytest.raises(DataError, match=r"but there is no catalogue that knows them: put .* back, or give another"):
        place.open(digit_hasher)
    assert names(place.path) == before
    assert names(place.added) == [OWN]


@pytest.mark.parametrize("state", ["{photos}", "{photos}/ones", "{photos}/ones/deep", "{link}", "{photos}/../photos"])
def test_added_images_do_not_lie_among_those_of_the_folder(model, folder, tmp_path, state):
    (folder / "added").mkdir()
    shutil.copy(folder / "ones" / "00.png", folder / "added")
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    own = state.format(photos=folder, link=tmp_path / "link")
    said = refused("serve", model, "--images", folder, "--state", own, "--port", 0)
    assert "would keep added images in" in said
    assert sorted(folder.rglob("*")) == before


def test_hidden_or_outside_they_may_lie(folder, tmp_path):
    for state in (folder / ".dmuh", folder / "ones" / ".x" / "y", tmp_path / "photos2", tmp_path):
        Place(state).check_apart(folder)
    with pytest.raises(ConfigError, match="among the images of"):
        Place(tmp_path).check_apart(tmp_path / "added")
    with pytest.raises(ConfigError, match="among the images of"):
        Place(tmp_path).check_apart(tmp_path)


def test_a_folder_that_is_not_there_any_more_empties_no_catalogue(folder, digit_hasher, tmp_path):
    place, empty = Place(tmp_path / "state"), tmp_path / "unmounted"
    empty.mkdir()
    with place.open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        for other in (folder, empty, tmp_path / "state"):
            with pytest.raises(DataError, match=r"none of the 20 images that .* knows is in .*: mount it, give "):
                compare_folder(catalogue, other)
        assert len(catalogue) == 20
        assert catalogue.about("folder") == str(folder)
        assert take(catalogue, tmp_path / "moved", digit_hasher)[0] == []  # it has moved, and is found
        assert len(catalogue) == 20
        assert catalogue.about("folder") == str(tmp_path / "moved")


def test_few_images_may_all_be_replaced(folder, digit_hasher, tmp_path):
    shutil.rmtree(folder / "ones")
    for file in sorted((folder / "zeros").iterdir())[3:]:
        file.unlink()
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
        (folder / "zeros").rename(folder / "others")
        assert len(take(catalogue, folder, digit_hasher)[0]) == len(catalogue) == 3


@pytest.mark.parametrize("damage", [
    lambda content: content.replace(b"zeros/03.png", b"zeros/04.png"),
    lambda content: content[:3000],
], ids=["altered", "cut"])  # fmt: skip
def test_a_damaged_catalogue_is_one_sentence(model, folder, digit_hasher, tmp_path, damage):
    place = Place(tmp_path / "state")
    with place.open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
    place.catalogue.write_bytes(damage(place.catalogue.read_bytes()))
    said = refused("serve", model, "--images", folder, "--state", place.path, "--port", 0)
    assert said.startswith(f"dmuh: {place.catalogue} cannot be used as a catalogue: ")
    assert said.count("cannot be used") == 1


def test_a_catalogue_of_a_folder_serves_no_index(collection, folder, digit_hasher, tmp_path):
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        take(catalogue, folder, digit_hasher)
        with pytest.raises(DataError, match="is of a folder, not of an index: give --images, or another --state"):
            take_collection(catalogue, collection, digit_hasher)


def test_link_loops_pipes_and_devices_are_passed_over(folder, digit_hasher, tmp_path):
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "loop").symlink_to("loop")
    (folder / "round").symlink_to(folder)
    (folder / "zero.jpg").symlink_to("/dev/zero")
    (folder / "nowhere.jpg").symlink_to("nothing")
    os.mkfifo(folder / "pipe.jpg")
    (folder / os.fsdecode(b"\xff.png")).write_bytes((folder / "ones" / "00.png").read_bytes())
    with Place(tmp_path / "state").open(digit_hasher) as catalogue:
        _, bad = take(catalogue, folder, digit_hasher)
        assert len(catalogue) == 21
        assert len(bad) == 0
        assert catalogue.id_of(os.fsdecode(b"\xff.png"), added=False) is not None


# -- folders of files ------------------------------------------------------------------------------------------------


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


def test_a_folder_beside_it_is_not_touched(digits, tmp_path):
    (tmp_path / ".images").mkdir()
    (tmp_path / ".images" / "mine.txt").write_text("mine")
    write_folder(digits, np.array([0]), tmp_path / "images")
    assert names(tmp_path) == [".images", "images"]
    assert (tmp_path / ".images" / "mine.txt").read_text() == "mine"
    with pytest.raises(IndexError):
        write_folder(digits, np.array([0, len(digits)]), tmp_path / "others")
    assert names(tmp_path) == [".images", "images"]  # nothing is left of what failed


def test_a_collection_that_is_none_says_how_to_make_it(digit_hasher, tmp_path):
    with Place(tmp_path / "state").open(digit_hasher) as catalogue, pytest.raises(DataError, match="dmuh index"):
        take_collection(catalogue, Collection(tmp_path / "nothing"), digit_hasher)
    assert not (tmp_path / "nothing").exists()
