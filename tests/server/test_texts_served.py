"""Sentences that a service is asked, over HTTP in this process."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import client_of

from dmuh import Hasher
from dmuh.errors import MissingExtraError


@pytest.fixture(scope="module")
def hasher(coloured) -> Hasher:
    return Hasher.load(coloured / "model")


@pytest.fixture(scope="module")
def shown(hasher, coloured, tmp_path_factory):
    root = tmp_path_factory.mktemp("texts")
    shutil.copytree(coloured / "pictures", root / "pictures")
    with client_of(hasher, root / "pictures", root / "state") as made:
        yield made


def search(client, status=200, /, **parameters):
    answer = client.get("/api/search", params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def kinds(answer):
    return [f"{match['labels'][0]} {match['path'].split('/')[1].split('-')[0]}" for match in answer["matches"]]


def test_a_sentence_finds_what_it_says(shown, hasher):
    answer = search(shown, text="a red circle", k=10)
    assert kinds(answer) == ["red circle"] * 10
    assert answer["ranking"] == "soft"
    code = hasher.encode_texts("a red circle")
    assert answer["query"]["text"] == "a red circle"
    assert answer["query"]["bits"] == "".join(map(str, code.unpack()[0]))
    assert answer["query"]["bit_uncertainty"] == pytest.approx(code.uncertainty[0].tolist(), abs=1e-4)
    assert kinds(search(shown, text="a red circle", label="blue", k=3)) == ["blue circle"] * 3


@pytest.mark.parametrize("ranking", ["soft", "hamming"])
def test_probabilities_are_those_of_texts(shown, hasher, ranking):
    answer = search(shown, text="the green square", ranking=ranking, k=96)
    assert answer["ranking"] == ranking
    distances = [match["distance"] for match in answer["matches"]]
    curve = hasher.texts.calibration.match_by_ranking(1)[ranking]
    assert [match["match"] for match in answer["matches"]] == pytest.approx(curve(distances), abs=2e-4)
    image = search(shown, id=answer["matches"][0]["id"], ranking=ranking, k=95)
    of_images = hasher.calibration.match_by_ranking(1)[ranking]
    distances = [match["distance"] for match in image["matches"] if not match["identical"]]
    probabilities = [match["match"] for match in image["matches"] if not match["identical"]]
    assert probabilities == pytest.approx(of_images(distances), abs=2e-4)
    likely = search(shown, text="the green square", ranking=ranking, k=96, at_least=0.8)
    assert 0 < len(likely["matches"]) < 96
    assert likely["left_out"] == 96 - len(likely["matches"])
    assert likely["best"] == answer["matches"][0]["match"]


def test_sentences_and_images_at_once_get_their_own_answers(shown):
    asked = [{"text": f"{words} {n // 3}", "k": 5} for n, words in enumerate(["a red circle", "a blue square"] * 12)]
    asked += [{"id": n, "k": 5} for n in range(1, 25)]
    alone = [search(shown, **one) for one in asked]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda one: search(shown, **one), asked)) == alone


def test_mistakes_are_told_in_a_sentence(shown):
    one = "give the id or the path of an image, or a code, or a text, and not several of them"
    assert search(shown, 422, text="a", id=1)["error"] == one
    assert search(shown, 422)["error"] == one
    assert search(shown, 422, text="  ")["error"] == "a text must say what to look for, got an empty one"
    assert "at least 1 character" in search(shown, 422, text="")["error"]
    assert "at most 500 characters" in search(shown, 422, text="a" * 501)["error"]
    assert "leave out by=class" in search(shown, 422, text="a", by="class")["error"]
    assert len(search(shown, text="ü" * 500)["matches"]) == 10
    strange = '"<b>\x00\N{GRINNING FACE}'
    assert search(shown, text=strange)["query"]["text"] == strange


def test_a_service_says_whether_it_has_texts(shown, shared, hasher, monkeypatch, coloured, tmp_path):
    assert shown.get("/api/about").json()["no_texts"] is None
    why = shared.get("/api/about").json()["no_texts"]
    assert why == "this model (dmuh) learned from images alone: train one for texts by dmuh train --texts"
    assert search(shared, 422, text="a one")["error"] == why

    def missing(*_, **__):
        raise MissingExtraError("reading sentences by minilm", "text")

    monkeypatch.setattr(hasher, "encode_texts", missing)  # as where the extra is not installed
    shutil.copytree(coloured / "pictures" / "red", tmp_path / "red")
    with client_of(hasher, tmp_path / "red", tmp_path / "state") as client:
        refusal = search(client, 422, text="a")["error"]
        assert refusal.startswith("texts cannot be searched with here: reading sentences by minilm")
        assert client.get("/api/about").json()["no_texts"] == refusal
        assert len(search(client, id=1)["matches"]) == 10
