"""A service that Milvus searches for answers as one that searches itself, and goes on when Milvus fails."""

import httpx2
import pytest
from serving import Server, client_of, picture

from commands import refused
from dmuh.catalogue import Catalogue, StateFolder
from dmuh.errors import ConfigError, EngineError, FormatError
from dmuh.index import MilvusIndex
from dmuh.server.milvus_mirror import MilvusMirror

# a process of its own stands behind each of these; the warnings are of pymilvus and what it imports
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
PNG = {"content-type": "image/png"}


def found(client, **parameters):
    """The answers to an upload, as pairs that two engines have in common."""
    answer = client.post("/api/search", content=picture(), headers=PNG, params={"k": 20, **parameters})
    assert answer.status_code == 200, answer.text
    return sorted((match["distance"], match["id"]) for match in answer.json()["matches"])


def test_answers_are_those_of_the_index_in_memory(digit_hasher, folder, milvus_address, tmp_path):
    with (
        client_of(digit_hasher, folder, tmp_path / "alone") as alone,
        client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client,
    ):
        for parameters in ({}, {"label": "ones"}, {"radius": 6.5}, {"ranking": "hamming"}, {"at_least": 0.5}):
            assert found(client, **parameters) == found(alone, **parameters)
        assert client.get("/api/about").json()["images"] == 20


def test_what_was_changed_is_found_at_once_and_after_a_restart(digit_hasher, folder, milvus_address, tmp_path):
    with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
        own = client.post("/api/images", content=picture(), headers=PNG).json()["id"]
        assert own in [id_ for _, id_ in found(client, k=21)]
        first = client.post("/api/search", content=picture(), headers=PNG).json()["matches"][0]
        assert (first["id"], first["identical"], first["hamming"]) == (own, True, 0)
        assert client.delete("/api/images/3").status_code == 204
        assert 3 not in [id_ for _, id_ in found(client, k=21)]
        before = found(client, k=21)
    with client_of(digit_hasher, folder, tmp_path / "state") as without:  # changed while Milvus is not asked
        without.delete("/api/images/5")
        other = without.post("/api/images", content=picture(seed=1), headers=PNG).json()["id"]
    with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
        after = found(client, k=21)
        assert {id_ for _, id_ in after} == {id_ for _, id_ in before} - {5} | {other}


def test_images_of_a_label_are_found_by_milvus(digit_hasher, folder, milvus_address, tmp_path, monkeypatch):
    with client_of(digit_hasher, folder, tmp_path / "alone") as alone:
        wanted = found(alone, label="ones")
        assert len(wanted) == 10
    with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
        monkeypatch.setattr("dmuh.server.searcher.HammingIndex", None)  # there is none in memory to ask
        assert found(client, label="ones") == wanted
        own = client.post("/api/images", content=picture(), headers=PNG, params={"label": ["ones", "new"]}).json()["id"]
        assert [id_ for _, id_ in found(client, label="new")] == [own]
        assert len(found(client, label="ones", k=21)) == 11
        assert client.delete(f"/api/images/{own}").status_code == 204
        assert found(client, label="new") == []
        assert client.post(f"/api/images/{own}/restore").status_code == 200
        assert [id_ for _, id_ in found(client, label="new")] == [own]
        by_id = client.get("/api/search", params={"id": own, "label": "ones", "k": 21}).json()["matches"]
        assert len(by_id) == 10
        assert own not in [match["id"] for match in by_id]
    monkeypatch.undo()
    with client_of(digit_hasher, folder, tmp_path / "state") as without:
        without.delete(f"/api/images/{own}")
    with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
        assert found(client, label="new") == []
        assert found(client, label="ones") == wanted


def test_a_copy_without_labels_is_made_anew(digit_hasher, folder, milvus_address, tmp_path, caplog):
    """Earlier versions stored none, and did not say what a collection belongs to."""
    name = f"dmuh_{'0' * 32}"
    with client_of(digit_hasher, folder, tmp_path / "state") as alone:
        wanted = found(alone, label="ones")
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        catalogue.note(milvus=name)
        old = MilvusIndex(milvus_address, collection=name).add(catalogue.codes())
        old.close()
    for _ in range(2):
        with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
            assert found(client, label="ones") == wanted
    assert caplog.text.count(f"the collection {name} there is not used any more") == 1


def test_while_milvus_fails_searches_are_refused_and_nothing_is_lost(
    digit_hasher, folder, milvus_address, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise EngineError("Milvus at milvus.example failed (timeout 10 s): it is away")

    with client_of(digit_hasher, folder, tmp_path / "state", milvus_address) as client:
        with monkeypatch.context() as patch:
            for method in ("search", "add", "add_missing", "remove"):
                patch.setattr(MilvusIndex, method, fail)
            own = client.post("/api/images", content=picture(), headers=PNG).json()["id"]
            assert client.delete("/api/images/3").status_code == 204
            answer = client.post("/api/search", content=picture(), headers=PNG)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json() == {"error": "the engine that searches does not answer: try again in a moment"}
            assert client.get("/api/about").json()["images"] == 20
        ids = [id_ for _, id_ in found(client, k=21)]
        assert own in ids
        assert 3 not in ids


def test_a_collection_that_dmuh_did_not_make_is_not_changed(milvus_address, tmp_path):
    with Catalogue(tmp_path / "catalogue.sqlite", 12) as catalogue:
        catalogue.note(milvus="customers")
        with pytest.raises(FormatError, match="names 'customers' as its collection in Milvus, which dmuh did not make"):
            MilvusMirror(milvus_address, catalogue)
        with pytest.raises(ConfigError, match="a collection of its own in Milvus: leave out collection"):
            MilvusMirror(f"{milvus_address}?collection=customers", catalogue)


@pytest.mark.long
def test_the_command(model, folder, milvus_address, tmp_path):
    words = [model, "--images", folder, "--state", tmp_path / "state", "--index"]
    with Server(*words, milvus_address) as server:
        answer = httpx2.post(f"{server.address}/api/search", content=picture(), headers=PNG)
        assert len(answer.json()["matches"]) == 10
    assert "a Milvus index is milvus:FILE.db" in refused("serve", *words, "milvus:codes")
    two = ["milvus:a.db", "--index", "milvus:b.db"]
    assert "one Milvus searches, got milvus:a.db and milvus:b.db" in refused("serve", *words, *two)
    assert "give the images to serve" in refused("serve", model, "--index", "milvus:a.db")
