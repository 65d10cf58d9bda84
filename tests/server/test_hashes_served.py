"""A service over hashes of another program: searched by image and by value, without a model."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import Server, picture
from starlette.testclient import TestClient

from commands import dmuh, refused
from dmuh.cli.serve import _service
from dmuh.collection import Collection
from dmuh.server.api.app import create_app
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics

WHY = (
    "images cannot be sent here, as their dhash is computed by another program: search with an image that is here, or "
    "with a dhash value"
)


def dhash(file: Path) -> str:
    """A difference hash of 64 bits: whether each of 8 × 8 small pixels is brighter than its neighbour."""
    pixels = np.asarray(Image.open(file).convert("L").resize((9, 8)))
    return np.packbits(pixels[:, 1:] > pixels[:, :-1]).tobytes().hex()


@pytest.fixture(scope="module")
def hashed(photos, tmp_path_factory) -> Path:
    """An index of the photos' hashes, and of one image that is not there."""
    folder = tmp_path_factory.mktemp("hashes")
    files = sorted(photos.rglob("*.png"))
    rows = [(n, file, dhash(file), file.parent.name) for n, file in enumerate(files)]
    with (folder / "hashes.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("id", "path", "dhash", "label"), *rows, (99, "", "00" * 8, "")])
    dmuh("index", folder / "hashes.csv", "--hash", "dhash", "--out", folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def client(hashed, tmp_path_factory) -> Iterator[TestClient]:
    limits, metrics = Limits(seconds=600), ServiceMetrics()
    state = tmp_path_factory.mktemp("state")
    with _service(None, None, hashed, state, None, None, limits, metrics) as service:
        app = create_app(service, limits, metrics)
        with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as made:
            yield made


def get(client, route, status=200, **parameters):
    answer = client.get(route, params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_what_is_served_says_that_it_takes_no_images(client):
    about = get(client, "/api/about")
    assert (about["method"], about["n_bits"], about["images"]) == ("dhash", 64, 21)
    assert about["no_uploads"] == WHY
    assert sorted(about["labels"].values()) == [10, 10]
    for route in ("/api/search", "/api/images"):
        answer = client.post(route, content=picture(), headers={"content-type": "image/png"})
        assert (answer.status_code, answer.json()) == (422, {"error": WHY})
    assert get(client, "/api/about")["images"] == 21


def test_search_by_id_path_and_value(client, hashed):
    codes = Collection(hashed).load_codes()
    expected = Collection(hashed).load_index().search(codes[3:4], 6)
    by_id = get(client, "/api/search", id=3, k=5)
    assert by_id["ranking"] == "hamming"
    assert [match["distance"] for match in by_id["matches"]] == expected.distances[0, 1:].tolist()
    by_value = get(client, "/api/search", code=codes[3].hex()[0], k=6)
    assert [match["distance"] for match in by_value["matches"]] == expected.distances[0].tolist()
    assert [match["id"] for match in by_value["matches"]] == expected.ids[0].tolist()
    assert by_value["query"]["bits"] == "".join(map(str, codes.unpack()[3]))
    assert get(client, "/api/search", code=codes[3].hex()[0].upper(), label="ones", k=2)["matches"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "give the id or the path of an image, or a code, or a text, and not several of them"),
        ({"id": 3, "code": "00" * 8}, "and not several of them"),
        ({"code": "00"}, "a code of 64 bits has 16 hexadecimal digits, got 2"),
        ({"code": "x" * 16}, "a code must be hexadecimal digits"),
        ({"code": "00" * 8, "by": "class"}, "leave out by=class"),
    ],
)
def test_what_cannot_be_searched_with(client, parameters, said):
    assert said in get(client, "/api/search", 422, **parameters)["error"]


def test_images_are_shown_where_their_files_are(client):
    assert client.get("/api/images/3/thumbnail").headers["content-type"] == "image/webp"
    assert client.get("/api/images/3/file").headers["content-type"] == "image/png"
    assert get(client, "/api/images/99/file", 404)["error"] == "the file of this image is gone"
    assert get(client, "/api/images/99")["path"] == "00" * 8


def test_codes_of_a_model_are_searched_by_value_too(shared):
    bits = get(shared, "/api/images/3")["bits"]
    digits = np.packbits([int(bit) for bit in bits], bitorder="little").tobytes().hex()
    first = get(shared, "/api/search", code=digits, k=1)["matches"][0]
    assert (first["hamming"], first["distance"]) == (0, 0)
    assert "has ones beyond bit 20" in get(shared, "/api/search", 422, code="ffffff")["error"]
    assert get(shared, "/api/about")["no_uploads"] is None


def test_the_command_says_what_it_needs(hashed, digit_run, photos, tmp_path):
    assert "without a model: leave out RUN" in refused("serve", digit_run.path, "--index", hashed)
    assert "give the model: dmuh serve RUN --images DIR" in refused("serve", "--images", photos)
    dmuh("index", digit_run.path, photos, "--out", tmp_path / "index")
    Collection(tmp_path / "index").write_items(
        Collection(tmp_path / "index").load_codes(), Collection(tmp_path / "index").items().values(),
        tmp_path / "gone", "d" * 64,
    )  # fmt: skip
    assert "gone, the model of" in refused("serve", "--index", tmp_path / "index")


@pytest.mark.long
def test_an_index_is_served_with_the_model_that_made_it(digit_run, photos, tmp_path):
    import httpx2

    dmuh("index", digit_run.path, photos, "--out", tmp_path / "index")
    with Server("--index", tmp_path / "index") as server:
        assert httpx2.get(f"{server.address}/api/about").json()["images"] == 20
