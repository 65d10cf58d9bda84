"""Indexes that are replaced, whose model or images moved, and whose images have names that are not UTF-8."""

import json
import os
import shutil
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
    about = index / "collection.json"
    about.write_text(about.read_text().replace("checksum", "altered"))
    assert "holds an index already" in refused("index", run, photos, "--out", index)
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
    (index / "source.safetensors").unlink()
    assert "does not say when its images were changed" in refused("index", index, "--sync")
