"""The folder of a service, and files in it that are not the service's."""

import shutil

import pytest
from serving import add_new, client_of, names, picture

from commands import refused
from dmuh.catalogue import StateFolder
from dmuh.errors import ConfigError, DataError

ADDED = "0f8fad5bd9cb469fa16570867728950e.png"


def test_files_that_the_catalogue_does_not_know_are_set_aside_or_left(digit_hasher, tmp_path, caplog):
    state = StateFolder(tmp_path / "state")
    state.open(digit_hasher).close()
    others = ["holiday.png", "0f8fad5bd9cb469fa16570867728950e.txt", ".hidden"]
    for name in [*others, ADDED, f".{ADDED}.dmuh-abcd1234.png"]:
        (state.added / name).write_text(name)
    (state.added / "folder").mkdir()
    (state.added / ADDED.replace("0", "1")).symlink_to(tmp_path)
    state.open(digit_hasher).close()
    assert names(state.added) == sorted([*others, "folder", ADDED.replace("0", "1")])
    assert names(state.set_aside) == [ADDED]
    assert f"1 files in {state.added} are not in the catalogue and were moved to {state.set_aside}" in caplog.text
    assert f"5 files in {state.added} are not of this service and are left, such as " in caplog.text
    (state.added / ADDED).write_text("another")
    state.open(digit_hasher).close()
    assert {file.read_text() for file in state.set_aside.iterdir()} == {ADDED, "another"}


def test_a_catalogue_from_a_backup_costs_no_image(digit_hasher, folder, tmp_path):
    state = StateFolder(tmp_path / "state")
    add = {"content": picture(), "headers": {"content-type": "image/png"}}
    with client_of(digit_hasher, folder, state.path) as client:
        client.post("/api/images", **add)
    kept = state.catalogue_file.read_bytes()
    with client_of(digit_hasher, folder, state.path) as client:
        answer = client.post("/api/images", **add).json()
        id_, later = answer["id"], answer["path"].removeprefix("added/")
    newest = state.catalogue_file.read_bytes()
    state.catalogue_file.write_bytes(kept)
    with client_of(digit_hasher, folder, state.path) as client:
        assert client.get("/api/about").json()["images"] == 21
    assert names(state.set_aside) == [later]
    assert (state.set_aside / later).read_bytes() == picture()
    state.catalogue_file.write_bytes(newest)
    with client_of(digit_hasher, folder, state.path) as client:
        assert client.get(f"/api/images/{id_}/file").content == picture()  # it is back
    assert names(state.set_aside) == []


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_its_catalogue_the_added_files_stay(digit_hasher, tmp_path, how):
    state = StateFolder(tmp_path / "state")
    state.added.mkdir(parents=True)
    (state.added / ADDED).write_text("an upload")
    if how == "empty":
        state.catalogue_file.touch()
    before = names(state.path)
    with pytest.raises(DataError, match=r"but there is no catalogue that knows them: put .* back, or give another"):
        state.open(digit_hasher)
    assert names(state.path) == before
    assert names(state.added) == [ADDED]


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
        StateFolder(state).check_apart(folder)
    with pytest.raises(ConfigError, match="among the images of"):
        StateFolder(tmp_path).check_apart(tmp_path / "added")
    with pytest.raises(ConfigError, match="among the images of"):
        StateFolder(tmp_path).check_apart(tmp_path)


@pytest.mark.parametrize("damage", [
    lambda content: content.replace(b"zeros/03.png", b"zeros/04.png"),
    lambda content: content[:3000],
], ids=["altered", "cut"])  # fmt: skip
def test_a_damaged_catalogue_is_one_sentence(model, folder, digit_hasher, tmp_path, damage):
    state = StateFolder(tmp_path / "state")
    with state.open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
    state.catalogue_file.write_bytes(damage(state.catalogue_file.read_bytes()))
    said = refused("serve", model, "--images", folder, "--state", state.path, "--port", 0)
    assert said.startswith(f"dmuh: {state.catalogue_file} cannot be used as a catalogue: ")
    assert said.count("cannot be used") == 1
