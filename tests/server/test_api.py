"""The API, asked over HTTP in this process."""

import io
import json
import os
import re
import shutil
import sqlite3
import threading
import time
from importlib import resources

import numpy as np
import pytest
from mutants import mutants
from PIL import Image
from serving import client_of, picture

from dmuh import HammingIndex, Hasher
from dmuh.duplicates import find_groups
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import RequestError
from dmuh.features import FeatureNetwork, folder_features
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import UNITS
from tiny import tiny

PNG = {"content-type": "image/png"}


def get(client, route, status=200, /, **parameters):
    answer = client.get(route, params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def search(client, status=200, /, **parameters):
    return get(client, "/api/search", status, **parameters)


def upload(client, content, status=200, route="/api/search", /, headers=PNG, **parameters):
    answer = client.post(route, content=content, headers=headers, params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def ids(answer):
    return [match["id"] for match in answer["matches"]]


def expected_distances(query, codes):
    """How many bits are expected to differ from the query's, in whole units, by the definition, bit by bit."""
    unsure, bits = query.uncertainty[0], query.unpack()[0]
    sums = []
    for code, levels in zip(codes.unpack(), codes.level(), strict=True):
        total = 0
        for bit in range(codes.n_bits):
            worth = 1 if codes.worth is None else codes.worth[bit, levels[bit]]
            sure = int(np.rint(UNITS * (1 - 2 * unsure[bit]) * np.float32(worth)))
            total += UNITS + sure if code[bit] != bits[bit] else UNITS - sure
        sums.append(total)
    return np.array(sums)


def in_order(distances, ids, k, query):
    """Distance and id of the k nearest of a query, ties in its own order."""
    order = np.lexsort((shuffled(ids) - turns(query, "soft"), distances))[:k]
    return [(round(distances[n] / (2 * UNITS), 4), ids[n]) for n in order]


def found(answer):
    return [(match["distance"], match["id"]) for match in answer["matches"]]


def test_the_nearest_images_of_one_in_the_collection(shared, digit_hasher, photos):
    paths = sorted(photos.rglob("*.png"))
    codes = digit_hasher.encode(paths, ids=range(1, 21)).stored()
    answer = search(shared, id=4, k=5)
    assert answer["query"]["id"] == 4
    assert answer["query"]["path"] == "ones/03.png"
    others = codes[codes.ids != 4]
    distances = expected_distances(codes[3], others)  # by the levels that are stored, on both sides
    assert found(answer) == in_order(distances, others.ids, 5, codes[3])
    assert answer["ranking"] == "soft"
    assert search(shared, path="ones/03.png", k=5) == search(shared, id=4, k=5, ranking="soft") == answer
    first = answer["matches"][0]
    assert sorted(first) == [
        "bit_uncertainty", "bits", "distance", "hamming", "id", "identical", "labels", "likely", "match", "metadata",
        "path", "uncertainty",
    ]  # fmt: skip
    row = first["id"] - 1
    assert first["bits"] == "".join(map(str, codes.unpack()[row]))
    assert first["hamming"] == (codes.unpack()[row] != codes.unpack()[3]).sum()
    np.testing.assert_allclose(first["bit_uncertainty"], codes.uncertainty[row], atol=5.1e-5)
    exact = digit_hasher.encode(paths).image_uncertainty
    assert first["uncertainty"] == pytest.approx(exact[row], abs=1e-6)


def test_the_nearest_images_by_hamming_distance(shared, digit_hasher, photos):
    codes = digit_hasher.encode(sorted(photos.rglob("*.png")), ids=range(1, 21))
    answer = search(shared, id=4, k=5, ranking="hamming")
    expected = HammingIndex().add(codes.plain()).search(codes[3].plain(), 6)
    others = [(d, i) for d, i in zip(expected.distances[0], expected.ids[0], strict=True) if i != 4][:5]
    assert (answer["ranking"], found(answer)) == ("hamming", others)
    assert all(match["hamming"] == match["distance"] for match in answer["matches"])
    assert '"distance":0.' not in shared.get("/api/search?id=4&ranking=hamming").text  # whole numbers


def test_the_nearest_images_of_an_upload(shared, digit_hasher, photos):
    codes = digit_hasher.encode(sorted(photos.rglob("*.png")), ids=range(1, 21)).stored()
    content = picture(seed=5)
    query = digit_hasher.encode(content)  # the exact uncertainty of the upload, against stored levels
    answer = upload(shared, content, k=20)
    assert found(answer) == in_order(expected_distances(query, codes), codes.ids, 20, query)
    assert answer["ranking"] == "soft"
    assert answer["query"]["bits"] == "".join(map(str, query.unpack()[0]))
    np.testing.assert_allclose(answer["query"]["bit_uncertainty"], query.uncertainty[0], atol=5.1e-5)
    assert "id" not in answer["query"]
    by_levels = in_order(expected_distances(query.stored(), codes), codes.ids, 20, query.stored())
    assert found(answer) != by_levels
    assert all(match["distance"] == match["hamming"] for match in upload(shared, content, ranking="hamming")["matches"])
    for kind in ("JPEG", "WEBP", "GIF"):
        assert len(upload(shared, picture(kind), headers={"content-type": f"image/{kind.lower()}"})["matches"]) == 10


def test_the_same_image_comes_first_whatever_its_distance(client, digit_hasher):
    contents = [picture(seed=seed) for seed in range(60)]
    exact = digit_hasher.encode(contents)
    codes = exact.stored()
    away = np.stack([expected_distances(exact[n], codes) for n in range(60)])
    row = next(n for n in range(60) if away[n].min() < away[n, n])  # another is nearer to it than itself
    own, other = (upload(client, contents[n], 201, "/api/images")["id"] for n in (row, int(away[row].argmin())))
    answer = upload(client, contents[row], k=20)
    first = answer["matches"][0]
    assert (first["id"], first["identical"], first["hamming"]) == (own, True, 0)
    assert (first["match"], first["likely"]) == (1, "very likely")
    assert first["distance"] == pytest.approx(away[row, row] / (2 * UNITS), abs=1e-4)
    assert min(answer["matches"], key=lambda match: match["distance"])["id"] == other
    assert not any(match["identical"] for match in answer["matches"][1:])
    assert ids(upload(client, contents[row], k=1)) == [own]
    assert ids(upload(client, contents[row], radius=0, at_least=1)) == [own]
    copies = [upload(client, contents[row], 201, "/api/images", label="copy")["id"] for _ in range(3)]
    answer = search(client, id=own, k=20)
    assert sorted(ids(answer)[:3]) == copies
    assert [match["identical"] for match in answer["matches"]] == [True] * 3 + [False] * 17
    assert sorted(ids(search(client, id=copies[0], k=3, ranking="hamming"))) == [own, *copies[1:]]
    assert sorted(ids(search(client, id=copies[0], label="copy", k=9))) == copies[1:]
    client.delete(f"/api/images/{copies[1]}")
    assert copies[1] not in ids(search(client, id=own, k=30))
    assert sum(match["identical"] for match in search(client, id=own, k=30)["matches"]) == 2


def test_each_match_says_how_likely_it_shares_a_label(shared, digit_hasher):
    for ranking in ("soft", "hamming"):
        curve = digit_hasher.calibration.match_by_ranking(1)[ranking]
        matches = search(shared, id=4, k=19, ranking=ranking)["matches"]
        assert [match["match"] for match in matches] == pytest.approx(
            curve([match["distance"] for match in matches]), abs=1e-3
        )
        for match in matches:
            words = "very likely" if match["match"] >= 0.8 else "maybe" if match["match"] >= 0.4 else "unlikely"
            assert match["likely"] == words


def test_what_is_not_likely_enough_is_left_out(shared):
    everything = search(shared, id=4, k=19)
    likely = [match["match"] for match in everything["matches"]]
    assert everything["best"] == max(likely)
    assert everything["left_out"] == 0
    middle = sorted(likely)[10]
    some = search(shared, id=4, k=19, at_least=middle)
    assert some["matches"] == [match for match in everything["matches"] if match["match"] >= middle]
    assert 0 < some["left_out"] == 19 - len(some["matches"])
    assert search(shared, id=4, k=19, at_least=0) == everything
    none = search(shared, id=4, k=7, at_least=1)
    assert (none["matches"], none["left_out"], none["best"]) == ([], 7, everything["best"])
    assert upload(shared, picture(), at_least=1)["matches"] == []
    assert search(shared, id=4, label="nothing", at_least=1) | {"query": 0} == {
        "query": 0, "ranking": "soft", "matches": [], "left_out": 0, "best": None
    }  # fmt: skip


def test_a_model_that_was_never_calibrated_is_served_too(digit_hasher, folder, tmp_path):
    """As one that was trained by an earlier dmuh."""
    about = {key: value for key, value in digit_hasher.about.items() if key != "calibration"}
    hasher = Hasher(digit_hasher._network, digit_hasher._preprocess, about, digit_hasher.digest)
    with client_of(hasher, folder, tmp_path / "state") as client:
        answer = search(client, id=4)
        assert (answer["ranking"], answer["best"]) == ("hamming", None)
        first = answer["matches"][0]
        assert first["match"] is first["likely"] is first["bit_uncertainty"] is None
        assert 0 <= first["uncertainty"] <= 0.5
        error = search(client, 422, id=4, at_least=0.5)["error"]
        assert error.startswith("at_least cannot be used: it is not known how often images share a label")
        assert upload(client, picture())["ranking"] == "soft"
        about = get(client, "/api/about")
        assert (about["sure"], about["ranking"], about["match_known"]) == (0, "hamming", False)


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_as_many_sure_bits_as_were_asked_for_are_kept_and_used(digit_hasher, folder, tmp_path, sure):
    paths = sorted(folder.rglob("*.png"))
    codes = digit_hasher.encode(paths, ids=range(1, 21), sure=sure)
    codes = codes.stored() if sure else codes.plain()
    with client_of(digit_hasher, folder, tmp_path / "state", sure=sure) as client:
        query = digit_hasher.encode(picture())
        assert found(upload(client, picture(), k=20)) == in_order(
            expected_distances(query, codes), codes.ids, 20, query
        )
        assert get(client, "/api/about")["sure"] == sure
        assert get(client, "/api/about")["ranking"] == ("soft" if sure else "hamming")
        known = get(client, "/api/images/1")["bit_uncertainty"]
        assert (known is None) == (sure == 0)
        own = upload(client, picture(seed=2), 201, "/api/images")["id"]
        assert ids(upload(client, picture(seed=2), k=1)) == [own]
    with client_of(digit_hasher, folder, tmp_path / "state") as client:  # what is there says how many
        assert get(client, "/api/about")["sure"] == sure
        assert search(client, id=own, k=20)["ranking"] == ("soft" if sure else "hamming")


def test_k_radius_and_label_leave_fewer(shared):
    everything = search(shared, id=4, k=1000)
    assert len(everything["matches"]) == 19
    assert ids(search(shared, id=4, k=2)) == ids(everything)[:2]
    radius = everything["matches"][7]["distance"]
    near = search(shared, id=4, k=1000, radius=radius)
    assert ids(near) == [match["id"] for match in everything["matches"] if match["distance"] <= radius]
    assert len(ids(near)) < 19
    by_hamming = search(shared, id=4, k=1000, ranking="hamming")["matches"]
    near = search(shared, id=4, k=1000, ranking="hamming", radius=4.5)
    assert ids(near) == [match["id"] for match in by_hamming if match["hamming"] <= 4]
    assert 0 < len(ids(near)) < 19
    zeros = search(shared, id=4, k=1000, label="zeros")
    assert ids(zeros) == [match["id"] for match in everything["matches"] if match["labels"] == ["zeros"]]
    assert search(shared, id=4, label="cats")["matches"] == []
    assert ids(upload(shared, picture(), label="ones", k=4)) != ids(upload(shared, picture(), label="zeros", k=4))


@pytest.mark.parametrize(("parameters", "words"), [
    ({}, "give the id or the path"),
    ({"id": 1, "path": "x"}, "and not several"),
    ({"id": "x"}, "id: input should be a valid integer"),
    ({"id": -1}, "id: input should be greater than or equal to 0, got '-1'"),
    ({"id": 2**63}, "id: "),
    ({"id": 1, "k": 0}, "k: input should be greater than or equal to 1, got '0'"),
    ({"id": 1, "k": 1001}, "k: input should be less than or equal to 1000"),
    ({"id": 1, "radius": -1}, "radius: "),
    ({"id": 1, "radius": "nan"}, "radius: input should be a finite number"),
    ({"id": 1, "radius": "inf"}, "radius: "),
    ({"id": 1, "ranking": "cosine"}, "ranking: input should be 'hamming' or 'soft', got 'cosine'"),
    ({"id": 1, "at_least": 1.1}, "at_least: input should be less than or equal to 1, got '1.1'"),
    ({"id": 1, "at_least": -0.1}, "at_least: "),
    ({"id": 1, "at_least": "nan"}, "at_least: "),
    ({"id": 1, "label": "x" * 201}, "label: "),
])  # fmt: skip
def test_wrong_parameters_are_one_sentence(shared, parameters, words):
    error = search(shared, 422, **parameters)["error"]
    assert words in error
    assert "\n" not in error


@pytest.mark.parametrize("path", ["nowhere.png", "/etc/passwd", "../state/catalogue.sqlite", "ones/../ones/03.png", "",
                                  "ones", "added/x.png", "ones/03.png\0", "http://127.0.0.1/x.png", "file:///etc/passwd",
                                  "\ufffd"])  # fmt: skip
def test_a_path_is_compared_and_never_opened(shared, path):
    assert search(shared, 404, path=path) == {"error": "there is no such image"}


def test_an_image_is_added_found_and_deleted(client, folder, tmp_path):
    content = picture(seed=3)
    added = upload(client, content, 201, "/api/images", label=["new", "ones"], name="noise.png")
    assert added["labels"] == ["new", "ones"]
    assert added["metadata"] == {"name": "noise.png"}
    assert re.fullmatch(r"added/[0-9a-f]{32}\.png", added["path"])
    assert get(client, f"/api/images/{added['id']}") == added
    assert added["id"] in ids(upload(client, content))
    assert ids(upload(client, content, label="new")) == [added["id"]]
    assert added["id"] in ids(upload(client, content, label="ones", k=20))
    assert search(client, path=added["path"])["query"] == added
    assert get(client, "/api/about")["images"] == 21
    assert get(client, "/api/about")["labels"] == {"new": 1, "ones": 11, "zeros": 10}
    assert client.get(f"/api/images/{added['id']}/file").content == content
    assert client.delete(f"/api/images/{added['id']}").status_code == 204
    assert added["id"] not in ids(upload(client, content, k=100))
    assert upload(client, content, label="new")["matches"] == []
    for path in ("", "/file", "/picture", "/thumbnail"):
        assert client.get(f"/api/images/{added['id']}{path}").status_code == 404
    assert client.delete(f"/api/images/{added['id']}").json() == {"error": f"there is no image {added['id']}"}
    assert upload(client, content, 201, "/api/images")["id"] > added["id"]


def test_a_deletion_is_undone_and_its_file_goes_with_the_service(digit_hasher, folder, tmp_path):
    content = picture(seed=3)
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        added = upload(client, content, 201, "/api/images", label="new")
        before = search(client, id=added["id"], k=50), search(client, id=4, k=50)
        for id_ in (added["id"], 4):
            assert client.delete(f"/api/images/{id_}").status_code == 204
            assert client.post(f"/api/images/{id_}/restore").json()["id"] == id_
        assert (search(client, id=added["id"], k=50), search(client, id=4, k=50)) == before
        assert client.get(f"/api/images/{added['id']}/file").content == content
        assert get(client, "/api/about")["labels"] == {"new": 1, "ones": 10, "zeros": 10}
        again = client.post("/api/images/4/restore")
        assert (again.status_code, again.json()) == (404, {"error": "image 4 was not deleted in the last ten minutes"})
        client.delete(f"/api/images/{added['id']}")
        assert len(list((tmp_path / "state" / "added").iterdir())) == 1
    assert list((tmp_path / "state" / "added").iterdir()) == []


def test_deleting_leaves_the_collections_own_file(client, folder):
    assert client.delete("/api/images/4").status_code == 204
    assert (folder / "ones" / "03.png").exists()
    assert search(client, 404, id=4) == {"error": "there is no such image"}
    assert 4 not in ids(search(client, id=5, k=100))
    assert get(client, "/api/about")["images"] == 19


def test_what_was_changed_is_there_after_a_restart(digit_hasher, folder, tmp_path):
    content = picture(seed=9)
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        id_ = upload(client, content, 201, "/api/images")["id"]
        client.delete("/api/images/1")
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        assert id_ in ids(upload(client, content))
        assert get(client, "/api/images/1", 404)
        assert get(client, "/api/about")["images"] == 20


def test_lists_of_images(shared):
    everything = get(shared, "/api/images", n=100, order="uncertainty")["images"]
    unsure = [image["uncertainty"] for image in everything]
    assert unsure == sorted(unsure, reverse=True)
    assert len(everything) == 20
    assert get(shared, "/api/images", n=5, offset=3, order="uncertainty")["images"] == everything[3:8]
    assert [image["id"] for image in get(shared, "/api/images", n=3, label="zeros")["images"]] == [11, 12, 13]
    assert len(get(shared, "/api/images", order="random", n=5)["images"]) == 5
    one, two, other = (get(shared, "/api/images", order="random", n=5, seed=seed) for seed in (1, 1, 2))
    assert one == two != other
    assert [image["id"] for image in get(shared, "/api/images", id=[7, 3, 99, 7])["images"]] == [7, 3]
    assert get(shared, "/api/images", 422, id=list(range(201)))["error"].startswith("id: ")
    assert get(shared, "/api/images", 422, order="size")["error"].startswith("order: ")
    assert get(shared, "/api/images", 422, n=201)["error"].startswith("n: ")


def duplicates(client, /, **parameters):
    while (answer := get(client, "/api/duplicates", **parameters))["working"]:
        time.sleep(0.05)
    return answer


def test_images_that_are_the_same_are_grouped_with_the_one_to_keep(client, folder):
    assert duplicates(client) == {"working": False, "by": "identical", "total": 0, "groups": []}
    copies = [upload(client, (folder / "ones" / "03.png").read_bytes(), 201, "/api/images")["id"] for _ in range(2)]
    larger = io.BytesIO()
    Image.open(folder / "zeros" / "01.png").save(larger, "PNG", compress_level=0)
    other = upload(client, larger.getvalue(), 201, "/api/images")["id"]
    found = duplicates(client)
    groups = [[image["id"] for image in group["images"]] for group in found["groups"]]
    assert (found["total"], groups) == (2, [[4, *copies], [other, 12]])
    assert [(group["best"], group["reason"]) for group in found["groups"]] == [
        (4, "first of equal files"), (other, "the largest file")
    ]  # fmt: skip
    assert [group["kinds"] for group in found["groups"]] == [["best", "identical", "identical"], ["best", "identical"]]
    assert duplicates(client, n=1, offset=1)["groups"] == found["groups"][1:]
    client.delete(f"/api/images/{other}")
    assert duplicates(client)["total"] == 1
    client.delete("/api/images/4")  # the best of three
    (group,) = duplicates(client)["groups"]
    assert ([image["id"] for image in group["images"]], group["best"]) == (copies, copies[0])


@pytest.fixture(scope="module")
def feature_network() -> FeatureNetwork:
    lower = tiny(freeze="all")
    content = to_onnx(FrozenPart(lower))
    return FeatureNetwork("tiny", 8, lower.backbone.preprocess, lambda: OnnxNetwork(content))


def test_by_features_near_duplicates_are_grouped_too(digit_hasher, tmp_path, feature_network):
    folder = tmp_path / "photos"
    folder.mkdir()
    for n in range(6):
        Image.fromarray(np.random.default_rng(n).integers(0, 256, (9, 12, 3), np.uint8)).resize(
            (240, 180), Image.Resampling.BICUBIC
        ).save(folder / f"{n}.png")
    Image.open(folder / "2.png").resize((120, 90)).save(folder / "smaller.jpg")
    shutil.copy(folder / "4.png", folder / "again.png")

    def features():
        return folder_features(folder, keep_in=tmp_path / "kept", network=feature_network)

    with client_of(digit_hasher, folder, tmp_path / "state", features=features) as client:
        answer = duplicates(client)
        assert answer["by"] == "features"
        expected = find_groups(features())
        assert [[image["path"] for image in group["images"]] for group in answer["groups"]] == [
            [str(member.path) for member in group.members] for group in expected
        ]
        assert [group["kinds"] for group in answer["groups"]] == [
            [member.kind for member in group.members] for group in expected
        ]
        assert [group["reason"] for group in answer["groups"]] == [group.reason for group in expected]
        assert "near" in {kind for group in answer["groups"] for kind in group["kinds"]}
        assert all(group["best"] == group["images"][0]["id"] for group in answer["groups"])


def test_labels_that_are_probably_wrong_are_listed_decided_on_and_taken_back(digit_hasher, folder, tmp_path):
    (folder / "ones" / "02.png").rename(folder / "zeros" / "strange.png")
    with client_of(digit_hasher, folder, tmp_path / "state") as client:
        while (answer := get(client, "/api/review"))["working"]:
            time.sleep(0.1)
        assert answer["open"] == len(answer["suspects"]) > 0
        strange = next(one for one in answer["suspects"] if one["image"]["path"] == "zeros/strange.png")
        assert (strange["suggested"], strange["decision"]) == (["ones"], None)
        assert strange["in_words"].endswith("wrong")
        chances = [one["probability"] for one in answer["suspects"]]
        assert chances == sorted(chances, reverse=True)
        assert chances[-1] >= 0.5
        id_ = strange["image"]["id"]
        assert client.post(f"/api/review/{id_}?decision=accept").status_code == 204
        left = get(client, "/api/review")
        assert (left["open"], left["decided"]) == (answer["open"] - 1, 1)
        assert get(client, "/api/review", decided=True)["suspects"] == [strange | {"decision": "accept"}]
        text = client.get("/api/review/decisions.csv")
        assert text.headers["content-type"] == "text/csv; charset=utf-8"
        assert text.text.splitlines()[0] == "path,labels,suggested,probability,in_words,decision"
        assert text.text.splitlines()[1].startswith("zeros/strange.png,zeros,ones,")
        assert text.text.splitlines()[1].endswith(",accept")
        assert client.post(f"/api/review/{id_}?decision=undo").status_code == 204
        assert get(client, "/api/review") == answer
        client.post(f"/api/review/{id_}?decision=skip")
    with client_of(digit_hasher, folder, tmp_path / "state") as client:  # decisions are kept
        while (again := get(client, "/api/review", decided=True))["working"]:
            time.sleep(0.1)
        assert [(one["image"]["id"], one["decision"]) for one in again["suspects"]] == [(id_, "skip")]
        right = next(n for n in range(1, 21) if n not in {one["image"]["id"] for one in answer["suspects"]})
        assert "not among those" in client.post(f"/api/review/{right}?decision=accept").json()["error"]
        assert client.post(f"/api/review/{id_}?decision=burn").status_code == 422


def test_images_without_labels_have_none_that_are_wrong(digit_hasher, folder, tmp_path):
    flat = tmp_path / "flat"
    shutil.copytree(folder / "ones", flat)
    with client_of(digit_hasher, flat, tmp_path / "state") as client:
        while (answer := get(client, "/api/review"))["working"]:
            time.sleep(0.1)
        assert answer == {"working": False, "open": 0, "decided": 0, "suspects": []}


def test_thumbnails_and_files(client, folder):
    big = Image.linear_gradient("L").resize((900, 300)).convert("RGB")
    buffer = io.BytesIO()
    big.save(buffer, "JPEG")
    id_ = upload(client, buffer.getvalue(), 201, "/api/images", headers={"content-type": "image/jpeg"})["id"]
    answer = client.get(f"/api/images/{id_}/thumbnail")
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["cache-control"] == "private, no-cache"
    with Image.open(io.BytesIO(answer.content)) as small:
        assert small.size == (256, 85)
    with Image.open(io.BytesIO(client.get("/api/images/1/thumbnail").content)) as small:
        np.testing.assert_array_equal(np.asarray(small)[..., 0], np.asarray(Image.open(folder / "ones" / "00.png")))
    file = client.get("/api/images/1/file")
    assert file.headers["content-type"] == "image/png"
    assert file.content == (folder / "ones" / "00.png").read_bytes()


@pytest.mark.parametrize(("kind", "shown"), [("TIFF", "image/webp"), ("PPM", "image/webp"), ("BMP", "image/bmp")])
def test_an_image_that_browsers_do_not_show_is_sent_as_one_that_they_do(client, folder, kind, shown):
    Image.new("RGB", (3000, 1000), "red").save(folder / "ones" / "00.png", kind)
    answer = client.get("/api/images/1/picture")
    assert answer.headers["content-type"] == shown
    with Image.open(io.BytesIO(answer.content)) as found:
        assert found.size == ((2048, 683) if shown == "image/webp" else (3000, 1000))
    known = {"if-none-match": answer.headers["etag"]}
    assert client.get("/api/images/1/picture", headers=known).status_code == 304
    assert client.get("/api/images/1/file").content == (folder / "ones" / "00.png").read_bytes()


@pytest.mark.parametrize("what", ["file", "picture", "thumbnail"])
def test_a_browser_asks_again_before_it_shows_what_it_has_kept(client, folder, what):
    first = client.get(f"/api/images/1/{what}")
    assert first.headers["cache-control"] == "private, no-cache"
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(f"/api/images/1/{what}", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(f"/api/images/1/{what}", headers={"if-none-match": '"other"'}).content == first.content
    (folder / "ones" / "00.png").write_bytes(picture(seed=8))
    changed = client.get(f"/api/images/1/{what}", headers={"if-none-match": tag})
    assert (changed.status_code, changed.headers["etag"] == tag) == (200, False)
    assert changed.content != first.content
    assert client.delete("/api/images/1").status_code == 204
    assert client.get(f"/api/images/1/{what}", headers={"if-none-match": tag}).status_code == 404


def test_answers_of_the_api_are_kept_nowhere(shared):
    for route in ("/api/about", "/api/images/1", "/api/images", "/api/search?id=1", "/api/nothing", "/metrics"):
        assert shared.get(route).headers["cache-control"] == "no-store"
    assert shared.get("/page/page.css").headers["cache-control"] == "no-cache"


def test_an_add_that_is_begun_is_answered_by_what_became_of_it(digit_hasher, folder, tmp_path):
    """While another program holds the catalogue's lock, an add waits: it never says no and is there later."""
    state = tmp_path / "state"
    with client_of(digit_hasher, folder, state, seconds=0.5) as client:
        while client.post("/api/search", content=picture(), headers=PNG).status_code == 503:
            pass  # the processes that decode are starting
        other = sqlite3.connect(state / "catalogue.sqlite", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        freed = threading.Timer(2, other.rollback)
        freed.start()
        answer = client.post("/api/images", content=picture(seed=1), headers=PNG)
        freed.join()
        other.close()
        while client.post("/api/images", content=picture(seed=2), headers=PNG).status_code == 503:
            pass  # whatever waited to be written is written now
        names = [image["path"] for image in get(client, "/api/images", n=100)["images"]]
    assert (answer.status_code, len(names)) in ((201, 22), (503, 21))


def test_a_full_disk_passes_through(client, monkeypatch):
    def full(*_):
        raise RequestError(507, "the disk is full")

    monkeypatch.setattr("dmuh.catalogue.writer.Writer._add", full)
    assert upload(client, picture(), 507, "/api/images") == {"error": "the disk is full"}
    assert "507" in client.get("/openapi.json").json()["paths"]["/api/images"]["post"]["responses"]


def test_files_that_became_links_pipes_or_something_else_are_not_shown(client, folder, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture(seed=1))
    (folder / "ones" / "00.png").unlink()
    (folder / "ones" / "00.png").symlink_to(secret)
    (folder / "ones" / "01.png").unlink()
    os.mkfifo(folder / "ones" / "01.png")
    (folder / "ones" / "02.png").write_text("#!/bin/sh")
    (folder / "ones" / "04.png").unlink()
    (folder / "ones" / "04.png").mkdir()
    (folder / "ones" / "05.png").unlink()
    (folder / "ones" / "05.png").symlink_to("/dev/zero")
    (folder / "ones" / "03.png").unlink()
    shutil.rmtree(folder / "zeros")
    (folder / "zeros").symlink_to(tmp_path)
    for id_ in (1, 2, 3, 4, 5, 6, 11):
        for what in ("file", "picture", "thumbnail"):
            answer = client.get(f"/api/images/{id_}/{what}")
            assert answer.status_code == 404
            assert str(tmp_path) not in answer.text
            assert str(folder) not in answer.text


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "text/plain", "application/json"])
def test_bodies_that_are_no_image_are_told_how(shared, kind):
    assert "--data-binary" in upload(shared, picture(), 415, headers={"content-type": kind})["error"]


def test_uploads_have_so_many_bytes_and_pixels(digit_hasher, folder, tmp_path):
    with client_of(digit_hasher, folder, tmp_path / "state", bytes=3000, pixels=900) as client:
        upload(client, picture(size=(30, 30)))
        assert upload(client, picture(size=(30, 31)), 413)["error"] == "an image may have 900 pixels at most"
        large = picture(size=(90, 90))
        assert len(large) > 3000
        assert upload(client, large, 413)["error"] == "an upload may have 3,000 bytes at most"

        def chunks():  # without a length
            yield from (large[n : n + 500] for n in range(0, len(large), 500))

        assert upload(client, chunks(), 413)["error"] == "an upload may have 3,000 bytes at most"
        assert upload(client, picture(size=(30, 31)), 413, "/api/images")["error"]


def test_a_hundred_mutated_uploads_are_refused_and_the_service_goes_on(shared):
    for name, content in mutants(100, seed=1):
        for path in ("/api/search", "/api/images"):
            answer = shared.post(path, content=content, headers=PNG)
            assert 400 <= answer.status_code < 500, name
            assert answer.json()["error"]
    assert get(shared, "/api/about")["images"] == 20
    assert len(upload(shared, picture())["matches"]) == 10


def test_labels_and_names_are_bounded(client):
    for parameters in ({"label": ""}, {"label": "x" * 201}, {"label": ["x"] * 21}, {"name": "x" * 201}):
        upload(client, picture(), 422, "/api/images", **parameters)
    strange = "<script>alert('ü')</script>\u2028"
    assert upload(client, picture(), 201, "/api/images", label=[strange, strange])["labels"] == [strange, strange]
    assert get(client, "/api/about")["labels"][strange] == 1


def test_what_is_served_and_how_it_does(client):
    about = get(client, "/api/about")
    assert (about["method"], about["backbone"], about["n_bits"]) == ("dmuh", "smallconv", 20)
    assert about["labels"] == {"ones": 10, "zeros": 10}
    assert (about["sure"], about["ranking"], about["match_known"]) == (1, "soft", True)
    assert "high_bit_uncertainty" not in about
    unsure = [image["uncertainty"] for image in get(client, "/api/images", n=100)["images"]]
    assert about["uncertainty_percentiles"] == pytest.approx(np.percentile(unsure, range(101)), abs=1e-5)
    assert get(client, "/healthz") == {"status": "ok"}
    search(client, id=1)
    client.get("/nowhere/at/all")
    text = client.get("/metrics").text
    assert 'dmuh_requests_total{method="GET",route="/api/search",status="200"} 1.0' in text
    assert 'dmuh_requests_total{method="any",route="none",status="404"} 1.0' in text
    assert "dmuh_images 20.0" in text
    assert 'dmuh_batch_size_count{work="search"} 1.0' in text
    assert "nowhere" not in text


def test_an_empty_collection_can_be_filled(digit_hasher, tmp_path):
    (tmp_path / "empty").mkdir()
    with client_of(digit_hasher, tmp_path / "empty", tmp_path / "state") as client:
        assert upload(client, picture())["matches"] == []
        id_ = upload(client, picture(), 201, "/api/images")["id"]
        assert ids(upload(client, picture())) == [id_]
        assert client.delete(f"/api/images/{id_}").status_code == 204
        assert upload(client, picture())["matches"] == []
        assert get(client, "/api/images")["images"] == get(client, "/api/images", order="random")["images"] == []


def test_the_description_has_every_route_with_examples(shared):
    description = shared.get("/openapi.json").json()
    routes = {(method, path) for path, methods in description["paths"].items() for method in methods}
    assert routes == {
        ("get", "/api/about"), ("get", "/api/map"), ("get", "/api/duplicates"),
        ("get", "/api/review"), ("post", "/api/review/{id}"), ("get", "/api/review/decisions.csv"),
        ("get", "/api/search"), ("post", "/api/search"), ("get", "/api/captions"), ("post", "/api/captions"),
        ("get", "/api/images"),
        ("post", "/api/images"), ("get", "/api/images/{id}"), ("delete", "/api/images/{id}"),
        ("post", "/api/images/{id}/restore"),
        ("get", "/api/images/{id}/file"), ("get", "/api/images/{id}/picture"), ("get", "/api/images/{id}/thumbnail"),
        ("post", "/api/session"), ("get", "/healthz"), ("get", "/metrics"),
    }  # fmt: skip
    schemas = description["components"]["schemas"]
    assert schemas["Match"]["properties"]["distance"]["examples"] == [3.4]
    assert {"hamming", "match", "likely", "identical"} <= set(schemas["Match"]["required"])
    assert {"ranking", "left_out", "best"} <= set(schemas["Answer"]["required"])
    assert {"ranking", "sure", "match_known"} <= set(schemas["About"]["required"])
    for method in ("get", "post"):
        asked = {one["name"]: one for one in description["paths"]["/api/search"][method]["parameters"]}
        assert {"k", "radius", "label", "ranking", "at_least"} <= set(asked)
    content = description["paths"]["/api/search"]["post"]["requestBody"]["content"]
    assert "image/jpeg" in content
    assert "--data-binary" in description["info"]["description"]


def test_the_page_is_made_of_files_of_its_own(shared):
    page = shared.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert sorted(set(links)) == ["/icon.svg", "/openapi.json", "/page/main.js", "/page/page.css"]
    assert "style=" not in page.text
    for link in set(links):
        assert shared.get(link).status_code == 200
    scripts, waiting = set(), {"main.js"}
    while waiting:
        name = waiting.pop()
        scripts.add(name)
        answer = shared.get(f"/page/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        waiting |= set(re.findall(r'from "\./(\w+\.js)"', answer.text)) - scripts
    photos = resources.files("dmuh").joinpath("server/page")
    assert scripts == {file.name for file in photos.iterdir() if file.name.endswith(".js")}  # all are used
    for text in (shared.get(f"/page/{name}").text for name in (*scripts, "page.css")):
        assert "//cdn" not in text
        assert "http" not in re.sub(r"//.*", "", text)


@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "patch", "options"])
def test_unknown_routes_are_one_sentence(shared, method):
    answer = getattr(shared, method)("/api/nothing")
    assert (answer.status_code, answer.json()) == (404, {"error": "not found"})
    assert getattr(shared, method)("/api/about").status_code == (200 if method == "get" else 405)


def test_a_browser_gets_a_cookie_for_the_token(digit_hasher, folder, tmp_path):
    token = "a token of some length"
    with client_of(digit_hasher, folder, tmp_path / "state", token=token) as client:
        assert client.post("/api/session").status_code == 401
        answer = client.post("/api/session", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert token not in cookie
        assert client.get("/api/about").status_code == 200  # the client keeps the cookie
        client.cookies.clear()
        assert client.get("/api/about").status_code == 401


def test_a_failure_is_a_sentence_without_a_path(client, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a mistake in /home/someone/state")

    monkeypatch.setattr("dmuh.catalogue.writer.written_whole", fail)
    answer = client.post("/api/images", content=picture(), headers=PNG)
    assert answer.status_code == 500
    assert "/home" not in answer.text
    assert "a mistake in" in caplog.text
    monkeypatch.undo()
    assert get(client, "/api/about")["images"] == 20
    upload(client, picture(), 201, "/api/images")
    assert json.loads(client.get("/healthz").text) == {"status": "ok"}
