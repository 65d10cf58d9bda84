"""Names of files and folders that are not UTF-8, from the folder to the answers and back."""

import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from serving import Server, client_of, picture

from commands import dmuh
from dmuh.catalogue.paths import displayed, named

CAFE, BAR = b"caf\xe9", b"b\xe4r\xff"  # in Latin-1, and with a byte that UTF-8 never has
PNG = {"content-type": "image/png"}


@pytest.fixture
def strange(folder) -> Path:
    """The folder of images in a folder, with an image, and as labels, that have names which are not UTF-8."""
    root = folder.rename(folder.parent / os.fsdecode(b"\xfcber"))
    (root / "ones").rename(root / os.fsdecode(CAFE))
    (root / "zeros").rename(root / os.fsdecode(BAR))
    (root / os.fsdecode(BAR) / "00.png").rename(root / os.fsdecode(BAR) / os.fsdecode(b"\xe9\xe8.png"))
    return root


def strict(answer: httpx2.Response) -> dict:
    """The JSON of an answer, which holds nothing that is not Unicode: readers in other languages refuse that."""
    assert answer.status_code in (200, 201), answer.text
    json.dumps(answer.json(), ensure_ascii=False).encode("utf-8")
    return answer.json()


def check(client: httpx2.Client, root: Path, images: int) -> dict:
    """All images are listed, searched from by id and path, and shown; returns them by path."""
    listed = {image["path"]: image for image in strict(client.get("/api/images?n=200"))["images"]}
    assert len(listed) == images
    for path, image in listed.items():
        found = strict(client.get(f"/api/search?id={image['id']}&k=200"))
        assert {match["path"] for match in found["matches"]} == listed.keys() - {path}
        assert strict(client.get(f"/api/search?path={quote(path)}"))["query"] == image
        assert client.get(f"/api/images/{image['id']}/thumbnail").headers["content-type"] == "image/webp"
        if not path.startswith("added/"):
            name = re.sub(rb"\\x(..)", lambda found: bytes.fromhex(found[1].decode()), path.encode())
            assert client.get(f"/api/images/{image['id']}/file").content == (root / os.fsdecode(name)).read_bytes()
    return listed


@pytest.mark.long
@pytest.mark.parametrize("how", ["--images", "--index"])
def test_images_of_any_name_are_served_changed_and_served_again(model, strange, tmp_path, monkeypatch, how):
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # as in most terminals; tests run in others
    source = strange
    if how == "--index":
        source = tmp_path / "index"
        assert "20 images indexed" in dmuh("index", model, strange, "--dataset", "folder", "--out", source).stdout
    options = (model, how, source, "--state", tmp_path / os.fsdecode(b"st\xe4te"))
    with Server(*options) as server, httpx2.Client(base_url=server.address) as client:
        listed = check(client, strange, 20)
        assert {r"caf\xe9/03.png", r"b\xe4r\xff/\xe9\xe8.png"} < listed.keys()
        assert strict(client.get("/api/about"))["labels"] == {r"caf\xe9": 10, r"b\xe4r\xff": 10}
        labelled = strict(client.get("/api/images", params={"label": r"caf\xe9", "n": 200}))["images"]
        assert {image["path"] for image in labelled} == {path for path in listed if path.startswith("caf")}
        added = client.post("/api/images", content=picture(), headers=PNG, params={"label": r"caf\xe9"})
        added = strict(added)["path"]
        id_ = listed[r"caf\xe9/03.png"]["id"]
        assert client.delete(f"/api/images/{id_}").status_code == 204
        changed = check(client, strange, 20)
        assert listed.keys() - changed.keys() == {r"caf\xe9/03.png"}
        assert changed.keys() - listed.keys() == {added}
    with Server(*options) as server, httpx2.Client(base_url=server.address) as client:
        assert check(client, strange, 20) == changed
    assert (strange / os.fsdecode(CAFE) / "03.png").exists()


def test_a_name_that_looks_like_such_a_byte_is_found_first(digit_hasher, folder, tmp_path):
    for name in (rb"caf\xe9.png", b"caf\xe9.png"):
        shutil.copy(folder / "ones" / "00.png", folder / os.fsdecode(name))
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        images = {image["id"]: image["path"] for image in strict(client.get("/api/images?n=200"))["images"]}
        alike = [id_ for id_, path in images.items() if path == r"caf\xe9.png"]
        assert len(alike) == 2
        first = strict(client.get("/api/search", params={"path": r"caf\xe9.png"}))["query"]["id"]
        (folder / r"caf\xe9.png").unlink()
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        left = strict(client.get("/api/search", params={"path": r"caf\xe9.png"}))["query"]
        assert {first, left["id"]} == set(alike)
        assert client.get(f"/api/images/{left['id']}/file").status_code == 200


def test_names_and_what_is_shown_of_them():
    for name in ("plain.png", "caf\u00e9", "caf\udce9", "\udc80\udcff/\udce9.png"):
        assert named(displayed(name)) == name
        assert displayed(name) == os.fsencode(name).decode("utf-8", "backslashreplace")
    assert displayed("\ud800") == "\ufffd"  # of no file, but a label may have it
