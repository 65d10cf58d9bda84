"""What `dmuh search` says of what it finds: in what order, how far away, and how likely it is of the same kind."""

import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from commands import dmuh, refused
from dmuh import Hasher
from dmuh.catalogue import Catalogue, Entry
from dmuh.cli.answers import Asked, Stored, find
from dmuh.collection import Collection
from dmuh.encoder.calibration import DEFAULT_SURE, Calibration
from dmuh.encoder.matching import likely, match_of, turning_over
from dmuh.index import HammingIndex
from earlier import as_earlier
from graded import calibration_card, graded_codes
from ties import turned


@pytest.fixture(scope="module")
def index(digit_run, photos, tmp_path_factory) -> Path:
    """Twenty images, one of which is there twice under another name."""
    own = tmp_path_factory.mktemp("search")
    shutil.copytree(photos, own / "photos")
    shutil.copy(photos / "ones" / "03.png", own / "photos" / "zeros" / "twin.png")
    dmuh("index", digit_run.path, own / "photos", "--dataset", "folder", "--out", own / "index")
    return own / "index"


@pytest.fixture(scope="module")
def query(index) -> Path:
    return index.parent / "photos" / "ones" / "03.png"


def asked(index, *options) -> dict:
    (answer,) = json.loads(dmuh("search", index, *options, "--json").stdout)
    return answer


def test_probabilities_have_words():
    words = {0.0: "unlikely", 0.39: "unlikely", 0.4: "maybe", 0.79: "maybe", 0.8: "very likely", 1.0: "very likely"}
    assert {probability: likely(probability) for probability in words} == words
    assert turning_over(3, 12) == "about 3.0 of 12 bits may turn over"


def test_a_probability_is_that_of_the_ranking():
    card = calibration_card(12)
    card["match"]["hamming"] = {"at": [0.0, 12.0], "probability": [0.5, 0.0]}
    calibration = Calibration.of_card({"n_bits": 12, "calibration": card})
    assert match_of(calibration, "hamming", [[0, 6, 12]]).tolist() == [[0.5, 0.25, 0.0]]
    assert match_of(calibration, "soft", [3.0, 100.0]).tolist() == pytest.approx([0.725, 0.05])
    assert match_of(Calibration.assumed(), "soft", [3.0]) is None


def test_the_same_image_comes_first_whatever_its_distance(index, query):
    for options in ([], ["--ranking", "hamming"], ["--radius", "1"], ["--ranking", "soft", "--radius", "0"]):
        matches = asked(index, query, *options)["matches"]
        assert {Path(match["path"]).name for match in matches[:2]} == {"03.png", "twin.png"}
        assert [match["identical"] for match in matches] == [True, True] + [False] * (len(matches) - 2)
        assert [match["hamming"] for match in matches[:2]] == [0, 0]
        rest = [match["distance"] for match in matches[2:]]
        assert rest == sorted(rest)
    (first,) = asked(index, query, "-k", 1)["matches"]
    assert first["identical"]


def test_soft_distances_are_expected_numbers_of_bits(index, query, digit_run):
    matches = asked(index, query, "-k", 21)["matches"]
    assert len(matches) == 21
    assert any(match["distance"] % 1 for match in matches)
    codes = Collection(index).load_codes()
    asked_for = Hasher.load(digit_run.path).encode(query)
    whole = HammingIndex().add(codes).search(asked_for, 21)
    wanted = dict(zip(whole.ids[0].tolist(), whole.distances[0].tolist(), strict=True))
    assert {match["id"]: match["distance"] for match in matches} == pytest.approx(wanted, abs=1e-4)
    differing = np.bitwise_count(codes.bits ^ asked_for.bits).sum(axis=1)
    assert {match["id"]: match["hamming"] for match in matches} == dict(
        zip(codes.ids.tolist(), differing.tolist(), strict=True)
    )


def test_hamming_distances_are_whole_numbers(index, query):
    matches = asked(index, query, "--ranking", "hamming", "-k", 21)["matches"]
    assert all(isinstance(match["distance"], int) and match["distance"] == match["hamming"] for match in matches)
    assert re.search(r"^  0 +same image", dmuh("search", index, query, "--ranking", "hamming").stdout, re.MULTILINE)


def test_a_radius_is_in_bits_and_softly_in_expected_bits(index, query):
    near = asked(index, query, "--radius", "3")["matches"]
    assert {match["hamming"] <= 3 for match in near} == {True}
    every = asked(index, query, "-k", 21)["matches"]
    middle = sorted(match["distance"] for match in every)[10]
    softly = asked(index, query, "--ranking", "soft", "--radius", middle + 1e-3)["matches"]
    wanted = {match["id"] for match in every if match["distance"] <= middle or match["identical"]}
    assert {match["id"] for match in softly} == wanted


def test_what_is_not_close_enough_is_left_out(index, query, tmp_path):
    every = asked(index, query, "-k", 21)["matches"]
    others = [match["match"] for match in every if not match["identical"]]
    assert others == sorted(others, reverse=True)
    assert {match["likely"] for match in every} == {likely(match["match"]) for match in every}
    high, low = sorted(set(others), reverse=True)[:2]
    kept = asked(index, query, "-k", 21, "--at-least", (high + low) / 2)
    assert [match["id"] for match in kept["matches"]] == [m["id"] for m in every if m["match"] >= high]
    assert 2 < len(kept["matches"]) < 21
    assert kept["best_match"] == 1  # the image itself
    with Image.open(query) as image:
        image.rotate(90).save(tmp_path / "turned.png")
    nothing = dmuh("search", index, tmp_path / "turned.png", "--at-least", 1).stdout
    assert re.search(r"nothing close enough: the best answer shares a label with a probability of 0\.\d\d\n", nothing)
    answer = asked(index, tmp_path / "turned.png", "--at-least", 1)
    assert answer["matches"] == []
    assert 0 < answer["best_match"] < 1


@pytest.mark.parametrize("probability", ["-0.1", "1.5", "half"])
def test_a_probability_is_from_0_to_1(index, query, probability):
    assert dmuh("search", index, query, "--at-least", probability, code=2).stdout == ""


def test_a_model_that_does_not_know_says_so(vectors, tmp_path):
    """Learned without labels, a network does not know what a distance means."""
    np.save(tmp_path / "features.npy", np.load(vectors / "features.npy"))
    options = ["--dataset", "features", "--data", tmp_path / "features.npy", "--method", "itq", "--bits", 8]
    dmuh("train", *options, "--no-evaluate", "--out", tmp_path / "run")
    dmuh("index", tmp_path / "run", tmp_path / "features.npy", "--dataset", "features", "--out", tmp_path / "index")
    np.save(tmp_path / "query.npy", np.load(tmp_path / "features.npy")[:1])
    answer = asked(tmp_path / "index", tmp_path / "query.npy")
    assert {(match["match"], match["likely"]) for match in answer["matches"]} == {(None, None)}
    assert answer["matches"][0]["identical"]
    sentence = refused("search", tmp_path / "index", tmp_path / "query.npy", "--at-least", 0.5)
    assert "does not know how likely images at a distance share a label" in sentence


@pytest.mark.parametrize("sure", [0, 1, 2, None])
def test_codes_have_as_many_sure_bits_as_asked_for(sure, digit_run, photos, tmp_path):
    options = [] if sure is None else ["--sure", sure]
    dmuh("index", digit_run.path, photos, *options, "--out", tmp_path / "index")
    made = json.loads(dmuh("encode", digit_run.path, photos, *options, "--json", "--out", tmp_path / "codes").stdout)
    wanted = DEFAULT_SURE if sure is None else sure
    codes = Collection(tmp_path / "index").load_codes()
    assert (codes.sure, made["sure"]) == (wanted, wanted)
    assert codes == Collection(tmp_path / "codes").load_codes()
    query = photos / "ones" / "03.png"
    assert asked(tmp_path / "index", query)["matches"][0]["path"] == str(query)
    text = re.sub(r"[│\s]+", " ", dmuh("index", "--help").stdout)
    assert f"{DEFAULT_SURE} (the default)" in text


def test_an_index_of_the_first_version_is_searched(index, query, tmp_path):
    """It knows neither levels nor contents: the query's own uncertainty ranks, and no image is known to be the same."""
    old = tmp_path / "old"
    as_earlier(Collection(index), old, version=None)
    answer = asked(old, query)
    assert answer["less_certain_than"] is None
    assert {(match["identical"], match["uncertainty"]) for match in answer["matches"]} == {(False, None)}
    assert any(match["distance"] % 1 for match in answer["matches"])
    assert re.search(r"\(about \d+\.\d of 20 bits may turn over\)\n", dmuh("search", old, query).stdout)


OUTPUTS = arrays(np.float32, st.tuples(st.integers(1, 12), st.just(9)), elements=st.sampled_from([-2, -0.3, 0.1, 1]))


@settings(max_examples=60)
@given(OUTPUTS, st.sampled_from([0, 1, 2]), st.integers(1, 14), st.sampled_from(["soft", "hamming"]),
       st.none() | st.floats(0, 10), st.none() | st.floats(0, 1))  # fmt: skip
def test_answers_are_those_of_a_plain_loop(outputs, sure, k, ranking, radius, at_least):
    """Few outputs, so that many images are the same and many distances are equal; ids are in no order."""
    ids = (np.arange(len(outputs)) * 7919) % 1009
    fresh = graded_codes(outputs, sure, ids)
    kept, queries = fresh.stored() if sure else fresh.plain(), fresh.with_ids(np.arange(len(fresh)))
    stored = type(kept)(kept.bits, 9, None, ids, kept.levels, kept.worth, fresh.contents)
    calibration = Calibration.of_card({"n_bits": 9, "calibration": calibration_card(9)})
    index = HammingIndex().add(stored)
    with TemporaryDirectory() as folder, Catalogue(Path(folder) / "catalogue.sqlite", 9) as catalogue:
        catalogue.add([Entry(f"{id_}.png", id=id_) for id_ in ids.tolist()], stored)
        asked_for = Asked(k, radius, ranking, at_least)
        answers = find(index, Stored.in_catalogue(catalogue), queries, asked_for, calibration)
    everything = index.search(queries, len(ids), ranking=ranking)
    for row, answer in enumerate(answers):
        distances = dict(zip(everything.ids[row].tolist(), everything.distances[row].tolist(), strict=True))
        same = {
            id_ for id_, content in zip(ids.tolist(), fresh.contents, strict=True) if content == fresh.contents[row]
        }
        wanted = sorted(
            (id_ not in same, 0 if id_ in same else away, *turned([id_], queries[row], ranking), id_)
            for id_, away in distances.items()
            if radius is None or id_ in same or away <= np.float32(radius)
        )
        wanted = [id_ for *_, id_ in wanted][: k if radius is None else None]
        chance = {id_: match_of(calibration, ranking, distances[id_], sure) for id_ in wanted}
        chances = {id_: 1.0 if id_ in same else chance[id_] for id_ in wanted}
        close = [id_ for id_ in wanted if at_least is None or chances[id_] >= at_least]
        assert [one.id for one in answer.found] == close
        assert [one.identical for one in answer.found] == [id_ in same for id_ in close]
        assert [one.distance for one in answer.found] == [distances[id_] for id_ in close]
        assert [one.match for one in answer.found] == [chances[id_] for id_ in close]
        assert answer.best == (None if at_least is None else max(chances.values(), default=0))
        bits = {id_: kept.bits[n] for n, id_ in enumerate(ids.tolist())}
        assert [one.hamming for one in answer.found] == [
            int(np.bitwise_count(bits[id_] ^ queries.bits[row]).sum()) for id_ in close
        ]
