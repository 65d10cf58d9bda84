"""The map: similar images lie side by side, and what was computed is kept."""

import time

import numpy as np
import pytest
from serving import client_of, picture

from dmuh import Codes
from dmuh.catalogue import Catalogue
from dmuh.server.map import layout as layouts
from dmuh.server.map.collection_map import CollectionMap
from dmuh.server.map.layout import SIDE, layout


def clustered(n: int, n_bits: int = 24, seed: int = 0) -> tuple[Codes, np.ndarray]:
    """Codes of three kinds of images, a few bits of each turned over."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice([-1.0, 1.0], (3, n_bits))
    kind = np.arange(n) % 3
    outputs = kinds[kind] * np.where(rng.random((n, n_bits)) < 0.06, -1, 1)
    return Codes.from_outputs(outputs.astype(np.float32)), kind


def apart(places: np.ndarray, kind: np.ndarray) -> float:
    """The share of images whose nearest other on the map is of the same kind."""
    away = ((places[:, None] - places) ** 2).sum(axis=2)
    np.fill_diagonal(away, np.inf)
    return float((kind[away.argmin(axis=1)] == kind).mean())


def test_similar_codes_lie_side_by_side_and_always_at_the_same_places():
    codes, kind = clustered(150)
    places, how = layout(codes)
    assert (places.shape, places.dtype, how) == ((150, 2), np.float32, "tsne")
    assert places.min() >= -0.01
    assert places.max() <= SIDE + 0.01
    assert np.ptp(places, axis=0).max() == pytest.approx(SIDE, rel=1e-3)
    assert apart(places, kind) > 0.97
    np.testing.assert_array_equal(places, layout(codes)[0])
    assert len(np.unique(places, axis=0)) == 150  # images of the same code do not hide each other


def test_codes_beyond_those_that_are_arranged_come_to_their_neighbours(monkeypatch):
    codes, kind = clustered(300)
    monkeypatch.setattr(layouts, "MOST", 60)
    monkeypatch.setattr(layouts, "_PART", 50)
    assert apart(layout(codes)[0], kind) > 0.95


def test_without_scikit_learn_main_directions_are_shown(monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.manifold", None)
    codes, kind = clustered(90)
    places, how = layout(codes)
    assert how == "pca"
    assert apart(places, kind) > 0.9
    assert "pip install 'dmuh[map]'" in caplog.text


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_few_images_have_places_too(n):
    codes, _ = clustered(n) if n else (Codes.from_outputs(np.empty((0, 24), np.float32)), None)
    places, how = layout(codes)
    assert (places.shape, how) == ((n, 2), "pca")
    assert np.isfinite(places).all()


def test_unsure_bits_count_less():
    """Codes that differ in a bit that is a coin toss lie nearer than those that differ in a sure one."""
    sure, toss = (
        layouts._soft_values(graded([[0.9, 0.9], [0.9, -0.9]])),
        layouts._soft_values(graded([[0.9, 0.1], [0.9, -0.1]])),
    )
    assert np.abs(sure[0] - sure[1]).sum() > np.abs(toss[0] - toss[1]).sum()


def graded(outputs) -> Codes:
    codes = Codes.from_outputs(
        np.array(outputs, np.float32), (0.5 - 0.5 * np.abs(np.array(outputs))).astype(np.float32)
    )
    return codes.graded(np.full((2, 1), 0.25, np.float32), np.array([[0.1, 0.9]] * 2, np.float32))


def wait(client) -> dict:
    while (answer := client.get("/api/map").json())["working"]:
        time.sleep(0.2)
    return answer


@pytest.mark.long
def test_the_map_is_computed_once_kept_and_follows_changes(digit_hasher, folder, tmp_path):
    state = tmp_path / "state"
    with client_of(digit_hasher, folder, state) as client:
        assert client.get("/api/map").json()["working"]
        answer = wait(client)
        assert answer["ids"] == list(range(1, 21))
        assert answer["names"] == ["ones", "zeros"]
        assert answer["label"] == [0] * 10 + [1] * 10
        assert answer["how"] == "tsne"
        listed = client.get("/api/images?n=100").json()["images"]
        assert answer["uncertainty"] == pytest.approx([image["uncertainty"] for image in listed], abs=1e-4)
        client.delete("/api/images/3")
        left = client.get("/api/map").json()
        assert (len(left["ids"]), left["working"]) == (19, False)
    kept = (state / "map.safetensors").read_bytes()
    with client_of(digit_hasher, folder, state) as client:
        assert client.get("/api/map").json() == left
        id_ = client.post("/api/images", content=picture(), headers={"content-type": "image/png"}).json()["id"]
        before = client.get("/api/map").json()
        assert (len(before["ids"]), before["working"]) == (19, True)  # what is known is shown meanwhile
        assert wait(client)["ids"][-1] == id_
    assert (state / "map.safetensors").read_bytes() != kept
    (state / "map.safetensors").write_bytes(b"damaged")
    with client_of(digit_hasher, folder, state) as client:
        assert len(wait(client)["ids"]) == 20


def test_a_map_that_cannot_be_computed_is_not_tried_again_and_again(tmp_path):
    codes, _ = clustered(7)
    with Catalogue(tmp_path / "catalogue.sqlite", 24) as catalogue:
        from dmuh.catalogue import Entry

        catalogue.add([Entry(f"{n}.png") for n in range(7)], codes)
        made = CollectionMap(catalogue)
        made.file.mkdir()  # so that nothing can be written there
        working = made.places()[1]
        assert working
        while working:
            time.sleep(0.1)
            places, working = made.places()
        assert len(places.ids) == 0
        assert not made.places()[1]
        made.close()
