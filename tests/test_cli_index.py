"""Indexes that are replaced, whose model or images moved, and whose images have names that are not UTF-8."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from commands import dmuh, refused
from dmuh.collection import Collection


@pytest.fixture
def index(digit_run, photos, tmp_path) -> Path:
    """An index that the test may change; its images and its model are the test's own too."""
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(digit_run.path, tmp_path / "run")
    dmuh("index", tmp_path / "run", tmp_path / "photos", "--out", tmp_path / "index")
    return tmp_path / "index"


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_an_index_is_replaced_on_demand_alone(index):
    again = ["index", index.parent / "run", index.parent / "photos" / "ones", "--out", index]
    before = content(index)
    assert "holds an index already" in refused(*again)
    assert content(index) == before
    assert dmuh(*again, "--replace").stdout == f"10 images indexed, in place of the index that was there: {index}\n"
    assert len(Collection(index).load_index()) == 10
    assert json.loads(dmuh(*again, "--replace", "--json").stdout)["replaced"] is True


def test_what_needs_no_permission(index):
    run, photos = index.parent / "run", index.parent / "photos"
    assert "replaced" not in dmuh("index", index).stdout  # the same codes give the same index
    new = json.loads(dmuh("index", run, photos, "--out", index.parent / "new", "--replace", "--json").stdout)
    assert new["replaced"] is False
    file = index / "catalogue.sqlite"
    file.write_bytes(file.read_bytes()[:-5000])
    assert "holds an index already" in refused("index", run, photos, "--out", index)
    assert "cannot be used as a catalogue" in refused("index", run, photos, "--out", index, "--replace")
    shutil.rmtree(index)
    dmuh("encode", run, photos, "--out", index)
    dmuh("encode", run, photos / "ones", "--out", index)  # codes without an index
    assert len(Collection(index).load_codes()) == 10


def test_a_model_that_moved_is_named_with_the_option_that_helps(index):
    run, query = index.parent / "run", index.parent / "photos" / "ones" / "03.png"
    run.rename(index.parent / "moved")
    said = refused("search", index, query)
    assert said == f"dmuh: {run}, the model of {index}, does not exist: if it moved, say where it is by --model"
    assert dmuh("search", index, query, "--model", index.parent / "moved").stdout.startswith(str(query))


@pytest.mark.long
def test_data_that_moved_are_named_with_the_option_that_helps(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    fast = ["--epochs", "1", "--bits", "8", "--backbone", "smallconv", "--set", "image_size=16", "--no-evaluate"]
    dmuh("train", "--dataset", "folder", "--data", tmp_path / "photos", "--out", tmp_path / "run", *fast)
    (tmp_path / "photos").rename(tmp_path / "moved")
    for command in (
        ["evaluate", tmp_path / "run"],
        ["export", tmp_path / "run", "--int8", "--out", tmp_path / "model"],
    ):
        assert "photos, the data of" in refused(*command)
        assert "--data" in refused(*command)
        dmuh(*command, "--data", tmp_path / "moved")


def test_images_that_moved_are_said_to_be_grey(index):
    photos = index.parent / "photos"
    shutil.copy(photos / "ones" / "03.png", index.parent / "query.png")
    photos.rename(index.parent / "moved")
    result = dmuh("search", index, index.parent / "query.png", "-k", "4", "--sheet", index.parent / "sheet.png")
    assert "4 of 4 found images are grey in the picture" in result.stderr
    assert "--replace" in result.stderr


@pytest.mark.long
def test_names_that_are_not_utf8_are_trained_on_indexed_searched_and_drawn(photos, tmp_path):
    root = tmp_path / os.fsdecode(b"\xfcber")
    shutil.copytree(photos, root)
    ones = (root / "ones").rename(root / os.fsdecode(b"un\xe9"))
    query = (ones / "03.png").rename(ones / os.fsdecode(b"caf\xe9.png"))
    run, index = tmp_path / os.fsdecode(b"r\xfcn"), tmp_path / os.fsdecode(b"ind\xe9x")
    fast = ["--epochs", "1", "--bits", "8", "--backbone", "smallconv", "--set", "image_size=16"]
    dmuh("train", "--dataset", "folder", "--data", root, "--out", run, *fast)
    first = json.loads(dmuh("evaluate", run, "--json").stdout)
    assert first["n_queries"] == 2
    assert "trained dmuh" in dmuh("train", "--out", run, "--resume").stdout
    assert "20 images indexed" in dmuh("index", run, root, "--dataset", "folder", "--out", index).stdout
    arguments = ["search", index, query, "--radius", "0"]
    (answer,) = json.loads(dmuh(*arguments, "--json").stdout)
    assert answer["query"] == str(query)
    match = next(match for match in answer["matches"] if match["path"] == str(query))
    assert match["labels"] == [r"un\xe9"]
    assert r"un\xe9" in dmuh(*arguments, "--sheet", tmp_path / "sheet.png").stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 96
    shards = tmp_path / os.fsdecode(b"sh\xe4rds")
    dmuh("encode", run, root, "--dataset", "folder", "--shards", 2, "--out", shards)
    assert "20 images indexed" in dmuh("index", shards).stdout


def synced(index: Path, *options: object) -> tuple[int, int, int, int]:
    said = json.loads(dmuh("index", index, "--sync", "--json", *options).stdout)
    return said["images"], said["added"], said["changed"], said["removed"]


def change(photos: Path) -> None:
    """One image is new, one is another one, one was touched, and one is gone."""
    shutil.copy(photos / "ones" / "05.png", photos / "zeros" / "new.png")
    shutil.copy(photos / "zeros" / "05.png", photos / "ones" / "04.png")
    os.utime(photos / "ones" / "06.png", (1, 1))
    (photos / "ones" / "03.png").unlink()


def paths(index: Path) -> dict[str, int]:
    return {"/".join(Path(item.path).parts[-2:]): id_ for id_, item in Collection(index).items().items()}


def test_an_index_follows_its_images(index):
    photos, before = index.parent / "photos", paths(index)
    assert synced(index) == (20, 0, 0, 0)
    change(photos)
    (photos / "ones" / "02.png").rename(photos / "ones" / "two.png")
    assert synced(index) == (20, 2, 2, 2)
    after = paths(index)
    assert {path for path in after if before.get(path) == after[path]} == {
        f"{name}/{n:02}.png" for name in ("ones", "zeros") for n in range(10)
    } - {f"ones/0{n}.png" for n in (2, 3, 4, 6)}  # fmt: skip
    assert not set(before.values()) & {after[path] for path in ("zeros/new.png", "ones/04.png", "ones/06.png")}
    dmuh("index", index.parent / "run", photos, "--out", index.parent / "fresh")
    assert by_path(index) == by_path(index.parent / "fresh")
    assert len(Collection(index).load_index()) == 20
    (photos / "ones" / "02b.png").write_bytes((photos / "ones" / "00.png").read_bytes())
    assert synced(index, "--workers", 0) == (21, 1, 0, 0)
    assert paths(index)["ones/02b.png"] > max(after.values())
    assert dmuh("index", index, "--sync").stdout == f"21 images indexed, 0 added, 0 changed, 0 removed: {index}\n"


def by_path(index: Path) -> dict[str, tuple]:
    """What an index says of each image, whatever its id."""
    collection = Collection(index)
    codes, items = collection.load_codes(), collection.items()
    return {
        items[id_].path: (code.bits.tobytes(), code.levels.tobytes(), int(code.contents[0]), items[id_].labels,
                          items[id_].uncertainty)
        for id_, code in zip(codes.ids.tolist(), codes, strict=True)
    }  # fmt: skip


def test_labels_and_unreadable_images_are_read_as_at_first(digit_run, photos, tmp_path):
    own = shutil.copytree(photos, tmp_path / "photos")
    options = ["--dataset", "folder", "--on-bad-image", "skip", "--sure", 2]
    dmuh("index", digit_run.path, own, *options, "--out", tmp_path / "index")
    shutil.copytree(own / "ones", own / "more")
    (own / "more" / "broken.png").write_bytes(b"no image")
    result = dmuh("index", tmp_path / "index", "--sync")
    assert "30 images indexed, 10 added, 0 changed, 0 removed" in result.stdout
    assert "1 unreadable image was skipped" in result.stderr
    assert Collection(tmp_path / "index").load_codes().sure == 2
    labels = [item.labels for item in Collection(tmp_path / "index").items().values()]
    assert labels.count(["more"]) == 10
    shutil.rmtree(own / "zeros")
    (own / "more" / "broken.png").unlink()
    assert synced(tmp_path / "index") == (20, 0, 0, 10)


def test_what_cannot_be_brought_up_to_date_is_one_sentence(index):
    assert "remembers how it was made" in refused("index", index, "--sync", "--sure", 1)
    assert "holds no encoded images" in refused("index", index.parent / "run", "--sync")
    (index.parent / "run").rename(index.parent / "moved")
    assert "the model of" in refused("index", index, "--sync")
    (index.parent / "moved").rename(index.parent / "run")
    shutil.move(index.parent / "photos", index.parent / "gone")
    assert "photos does not exist" in refused("index", index, "--sync")
    assert "give one of --sync, --add and --remove" in refused("index", index, "--sync", "--add")
    for option in ("--add", "--remove"):
        assert f"say which images: dmuh index {index} IMAGES {option}" in refused("index", index, option)
    gone = index.parent / "gone"
    assert f"to add images: dmuh index {index} IMAGES --add" in refused("index", index, gone)
    assert "leave out --out, --sure" in refused("index", index, gone, "--add", "--replace")
    assert "has no image" in refused("index", index, index.parent / "elsewhere", "--remove")
    assert "leave out --dataset" in refused("index", index, gone, "--remove", "--dataset", "folder")
    dmuh("encode", index.parent / "run", gone, "--shards", 2, "--out", index.parent / "shards")
    dmuh("index", index.parent / "shards")
    assert "does not say when its images were changed" in refused("index", index.parent / "shards", "--sync")


# -- images that come and go -----------------------------------------------------------------------------------------


def changed(said: str) -> tuple[int, int, int, int]:
    found = json.loads(said)
    return found["images"], found["added"], found["changed"], found["removed"]


def test_images_are_added_without_starting_anew(index, photos, tmp_path):
    more = shutil.copytree(photos / "ones", tmp_path / "more")
    before = paths(index)
    written = (index / "index.safetensors").stat()
    options = ["--add", "--dataset", "folder", "--json"]
    shutil.copytree(more, tmp_path / "labelled" / "more")
    assert changed(dmuh("index", index, tmp_path / "labelled", *options).stdout) == (30, 10, 0, 0)
    assert (index / "index.safetensors").stat() == written
    assert paths(index).items() >= before.items()
    labels = [item.labels for item in Collection(index).items().values()]
    assert labels.count(["more"]) == 10
    assert changed(dmuh("index", index, tmp_path / "labelled", *options).stdout) == (30, 0, 0, 0)
    query = tmp_path / "labelled" / "more" / "03.png"
    (answer,) = json.loads(dmuh("search", index, query, "-k", 3, "--json").stdout)
    assert str(query) in [match["path"] for match in answer["matches"] if match["identical"]]
    (tmp_path / "labelled" / "more" / "new.png").write_bytes(query.read_bytes())
    (tmp_path / "labelled" / "more" / "04.png").unlink()
    (tmp_path / "photos" / "ones" / "05.png").unlink()
    assert synced(index) == (29, 1, 0, 2), "both folders are followed from then on"
    assert dmuh("index", index, more / "06.png", "--add").stdout == (
        f"30 images indexed, 1 added, 0 changed, 0 removed: {index}\n"
    )


def test_images_are_removed_and_stay_away_until_they_are_added(index):
    photos = index.parent / "photos"
    assert changed(dmuh("index", index, photos / "zeros", photos / "ones" / "03.png", "--remove", "--json").stdout) == (
        9, 0, 0, 11,
    )  # fmt: skip
    assert (photos / "zeros" / "03.png").exists()
    assert synced(index) == (9, 0, 0, 0)
    assert (
        dmuh("index", index, photos / "ones" / "04.png", "--remove").stdout == f"8 images indexed, 1 removed: {index}\n"
    )
    assert changed(dmuh("index", index, photos / "zeros", "--add", "--json").stdout) == (18, 10, 0, 0)
    assert synced(index) == (18, 0, 0, 0)
    assert "which would be lost: bring it up to date by --sync" in refused(
        "index", index.parent / "run", photos, "--out", index, "--replace"
    )


def test_images_that_are_there_keep_their_labels_when_they_are_added_again(digit_run, photos, tmp_path):
    index = tmp_path / "index"
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", index)
    before = Collection(index).items()
    assert changed(dmuh("index", index, photos / "ones", "--add", "--json").stdout) == (20, 0, 0, 0)
    assert Collection(index).items() == before
    assert synced(index) == (20, 0, 0, 0)
    assert Collection(index).items() == before


def test_labels_that_changed_are_taken_up_without_encoding(digit_run, photos, tmp_path, monkeypatch):
    table = tmp_path / "labels.csv"
    rows = [f"{file},{file.parent.name}" for file in sorted(photos.rglob("*.png"))]
    table.write_text("\n".join(["path,label", *rows]))
    index = tmp_path / "index"
    dmuh("index", digit_run.path, table, "--dataset", "csv", "--out", index)
    before = Collection(index).load_codes()
    table.write_text("\n".join(["path,label", *rows[:-1], rows[-1].replace(",zeros", ",other")]))
    assert synced(index) == (20, 0, 0, 0)
    assert Collection(index).items([19])[19].labels == ["other"]
    assert Collection(index).load_codes() == before


PARTS = """
import os, sys
from dmuh.encoder import syncing
from dmuh.cli import main

syncing.PART = 3
add, calls = syncing._add, []

def killed_at(*arguments):
    calls.append(arguments)
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
    add(*arguments)

syncing._add = killed_at
sys.argv = ["dmuh", "index", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("how", ["--sync", "--add"])
def test_a_killed_change_keeps_what_was_encoded_and_goes_on(index, photos, how):
    more = shutil.copytree(photos / "ones", index.parent / "photos" / "more")
    command = [str(index), "--sync"] if how == "--sync" else [str(index), str(more), "--add"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PARTS, *command], env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(Collection(index).items()) == len(Collection(index).load_index()) == 26
    assert changed(dmuh("index", *command, "--json").stdout) == (30, 4, 0, 0)
    assert synced(index) == (30, 0, 0, 0)


READ_ONLY = """
import ctypes, os, sys
if not os.getuid():  # root may write anywhere, by a right that it can do without
    head, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None)
    assert libc.capget(head, rights) == 0
    rights[0] &= ~(1 << 1)
    rights[1] &= ~(1 << 1)
    assert libc.capset(head, rights) == 0
from dmuh.cli import main
sys.argv = ["dmuh", *sys.argv[1:]]
main()
"""


def test_a_folder_that_cannot_be_written_to_is_searched(index):
    query = index.parent / "photos" / "ones" / "03.png"
    before = content(index)
    index.chmod(0o555)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*words):
        command = [sys.executable, "-c", READ_ONLY, *map(str, words)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    found, refusal = run("search", index, query, "-k", "1", "--json"), run("index", index, "--sync")
    index.chmod(0o755)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)[0]["matches"][0]["path"] == str(query)
    assert content(index) == before
    assert refusal.returncode == 2
    assert refusal.stderr.count("\n") == 1
