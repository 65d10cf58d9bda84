"""Images are answered in words over HTTP, in this process: with the sentences about images of the collection."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import client_of, client_of_index

from commands import dmuh
from dmuh import Collection, Hasher
from dmuh.errors import MissingExtraError


@pytest.fixture(scope="module")
def hasher(coloured) -> Hasher:
    return Hasher.load(coloured / "model")


@pytest.fixture(scope="module")
def made(coloured, tmp_path_factory) -> Path:
    """An index of a list with sentences; image 0 has one of its own."""
    folder = tmp_path_factory.mktemp("captions")
    header, *rows = (coloured / "list.csv").read_text().splitlines()
    rows = [f"{coloured}/{row}" for row in rows]
    rows.append(f"{rows[0].rsplit(',', 1)[0]},something red and round")
    (folder / "list.csv").write_text("\n".join([header, *rows]) + "\n")
    options = ("--dataset", "csv", "--texts", "caption", "--out", folder / "index")
    dmuh("index", coloured / "model", folder / "list.csv", *options)
    return folder / "index"


@pytest.fixture
def index(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "index")


def captions(client, status=200, /, **parameters):
    answer = client.get("/api/captions", params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def by_command(index: Path, *options: object) -> dict:
    (found,) = json.loads(dmuh("search", index, *options, "--captions", "--json").stdout)
    return found


@pytest.mark.parametrize("ranking", ["soft", "hamming"])
def test_answers_are_those_of_the_command_line(hasher, index, coloured, ranking):
    picture = coloured / "pictures" / "blue" / "square-05.png"
    options = ("--ranking", ranking, "-k", 7)
    wanted = {"id": by_command(index, "--id", 5, *options), "upload": by_command(index, picture, *options)}
    with client_of_index(hasher, index) as client:
        found = {
            "id": captions(client, id=5, k=7, ranking=ranking),
            "upload": client.post(f"/api/captions?k=7&ranking={ranking}", content=picture.read_bytes()).json(),
        }
        assert found["id"]["query"]["id"] == 5
        assert "id" not in found["upload"]["query"]
        path = found["id"]["query"]["path"]
        assert captions(client, path=path, k=7, ranking=ranking) == found["id"]
    for name, answer in found.items():
        assert answer["ranking"] == ranking
        assert [text.pop("images") for text in answer["texts"]] == [
            text.pop("images") for text in wanted[name]["texts"]
        ]
        assert [list(text) for text in answer["texts"]] == [["text", "distance", "hamming", "match", "likely"]] * 7
        for own, other in zip(answer["texts"], wanted[name]["texts"], strict=True):
            assert [own[key] for key in ("text", "hamming", "likely")] == [
                other[key] for key in ("text", "hamming", "likely")
            ]
            assert (own["distance"], own["match"]) == pytest.approx((other["distance"], other["match"]), abs=2e-4)
    assert "blue" in found["upload"]["texts"][0]["text"]
    assert found["upload"]["texts"][0]["likely"] == "very likely"


def test_what_is_not_likely_enough_is_left_out(hasher, index):
    with client_of_index(hasher, index) as client:
        everything = captions(client, id=5, k=1000)
        some = captions(client, id=5, k=1000, at_least=0.8)
        assert 0 < len(some["texts"]) < len(everything["texts"])
        assert some["texts"] == [text for text in everything["texts"] if text["match"] >= 0.8]
        assert some["left_out"] == len(everything["texts"]) - len(some["texts"])
        assert some["best"] == everything["best"] == everything["texts"][0]["match"]
        assert captions(client, id=5, at_least=1)["texts"] == []
        assert len(captions(client, id=5)["texts"]) == 5
        code = f"{sum(int(bit) << n for n, bit in enumerate(everything['query']['bits'])):06x}"
        code = bytes.fromhex(code)[::-1].hex()
        assert (
            captions(client, code=code, ranking="hamming")["texts"]
            == captions(client, id=5, ranking="hamming")["texts"]
        )


def test_sentences_go_and_come_back_with_their_images(hasher, index):
    def said(client) -> dict:
        return {text["text"]: text["images"] for text in captions(client, id=1, k=1000)["texts"]}

    with client_of_index(hasher, index) as client:
        before = said(client)
        assert before["something red and round"] == [0]
        assert 0 in before["a red circle"]
        assert client.delete("/api/images/0").status_code == 204
        after = said(client)
        assert "something red and round" not in after
        assert after["a red circle"] == [id_ for id_ in before["a red circle"] if id_ != 0]
        assert client.post("/api/images/0/restore").status_code == 200
        assert said(client) == before
        for id_ in Collection(index).items():
            if id_ != 1:
                client.delete(f"/api/images/{id_}")
        assert list(said(client).values()) == [[1]]
        client.delete("/api/images/1")
        code = "00" * 3
        assert captions(client, code=code) | {"query": None} == {
            "query": None, "ranking": "hamming", "texts": [], "left_out": 0, "best": None,
        }  # fmt: skip


def test_an_index_that_is_served_from_elsewhere_has_its_sentences(hasher, index, tmp_path, monkeypatch):
    with client_of_index(hasher, index) as client:
        wanted = captions(client, id=5, k=20)
    with client_of_index(hasher, index, tmp_path / "state") as client:
        assert captions(client, id=5, k=20) == wanted
    assert (tmp_path / "state" / "texts.safetensors").read_bytes()  # so that they are encoded once

    def missing(*_, **__):
        raise MissingExtraError("reading sentences by minilm", "text")

    monkeypatch.setattr(hasher, "encode_texts", missing)
    with client_of_index(hasher, index, tmp_path / "state") as client:
        assert captions(client, id=5, k=20) == wanted


def test_many_at_once_get_their_own_answers(hasher, index):
    with client_of_index(hasher, index) as client:
        alone = [captions(client, id=id_) for id_ in range(40)]
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(lambda id_: captions(client, id=id_), range(40))) == alone


def test_mistakes_are_told_in_a_sentence(hasher, index, coloured, shared, tmp_path):
    one = "give the id or the path of an image, or a code, and not several of them"
    with client_of_index(hasher, index) as client:
        assert client.get("/api/about").json()["no_captions"] is None
        assert captions(client, 422)["error"] == one
        assert captions(client, 422, id=1, path="a.png")["error"] == one
        assert captions(client, 404, id=10_000)["error"] == "there is no such image"
        assert captions(client, 404, path="no/such.png")["error"] == "there is no such image"
        assert "24 bits has 6 hexadecimal digits, got 2" in captions(client, 422, code="00")["error"]
        assert "k: input should be greater than or equal to 1" in captions(client, 422, id=1, k=0)["error"]
        assert client.post("/api/captions", content=b"hello").status_code == 415
    alone = "this model (dmuh) learned from images alone: train one for texts by dmuh train --texts"
    why = f"captions cannot be searched: {alone}"
    assert captions(shared, 422, id=1)["error"] == why
    assert shared.post("/api/captions", content=b"hello").json()["error"] == why
    assert shared.get("/api/about").json()["no_captions"] == why
    shutil.copytree(coloured / "pictures" / "red", tmp_path / "red")
    with client_of(hasher, tmp_path / "red", tmp_path / "state") as client:
        why = "there are no sentences about the images: index a list of them with --texts, which names their column"
        assert captions(client, 422, id=1)["error"] == why
        assert client.get("/api/about").json()["no_captions"] == why


def test_a_damaged_file_of_codes_leaves_images_served(hasher, index, caplog):
    file = index / "texts.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with client_of_index(hasher, index) as client:
        error = captions(client, 422, id=1)["error"]
        assert error == (
            "captions cannot be searched here: the file of their codes cannot be read, which the log of the service "
            "explains"
        )
        assert client.get("/api/about").json()["no_captions"] == error
        assert len(client.get("/api/search?id=1").json()["matches"]) == 10
        client.delete("/api/images/0")
    assert "was altered after it was written" in caplog.text


def test_codes_that_are_not_kept_need_the_encoder(hasher, index, monkeypatch):
    def missing(*_, **__):
        raise MissingExtraError("reading sentences by minilm", "text")

    (index / "texts.safetensors").unlink()
    monkeypatch.setattr(hasher, "encode_texts", missing)  # as where the extra is not installed
    with client_of_index(hasher, index) as client:
        assert captions(client, 422, id=1)["error"].startswith(
            "captions cannot be searched here: reading sentences by minilm"
        )
