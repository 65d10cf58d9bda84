"""Words ask for images on the command line, and a folder is opened with a model that was trained before."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import dmuh, refused
from dmuh import HammingIndex, Hasher
from dmuh.encoder.matching import likely
from dmuh.errors import ConfigError, RunError
from dmuh.opening import open_with_model

TEXTS = ["a red circle", "the blue square", "one green circle"]


@pytest.fixture(scope="module")
def index(coloured, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("words") / "index"
    dmuh("index", coloured / "model", coloured / "pictures", "--dataset", "folder", "--out", folder)
    return folder


@pytest.fixture(scope="module")
def hasher(coloured) -> Hasher:
    return Hasher.load(coloured / "model")


def kind(path: str) -> str:
    return f"{Path(path).parent.name} {Path(path).stem.split('-')[0]}"


def test_sentences_find_what_they_say(index, hasher):
    options = [part for text in TEXTS for part in ("--text", text)]
    answers = json.loads(dmuh("search", index, *options, "-k", 10, "--json").stdout)
    assert [answer["query"] for answer in answers] == TEXTS
    for answer, wanted in zip(answers, ("red circle", "blue square", "green circle"), strict=True):
        assert [kind(match["path"]) for match in answer["matches"]] == [wanted] * 10
        assert not any(match["identical"] for match in answer["matches"])
        assert answer["less_certain_than"] is None  # a text is no image, to be compared with images


@pytest.mark.parametrize("ranking", ["soft", "hamming"])
def test_a_probability_is_what_distances_from_texts_mean(index, hasher, ranking):
    (answer,) = json.loads(dmuh("search", index, "--text", TEXTS[0], "-k", 96, "--ranking", ranking, "--json").stdout)
    of_texts, of_images = (
        calibration.match_by_ranking(1)[ranking] for calibration in (hasher.texts.calibration, hasher.calibration)
    )
    distances = [match["distance"] for match in answer["matches"]]
    assert distances == sorted(distances)
    assert [match["match"] for match in answer["matches"]] == pytest.approx(of_texts(distances), abs=2e-4)
    everywhere = np.linspace(0, 24, 100)
    assert np.abs(of_texts(everywhere) - of_images(everywhere)).max() > 0.01
    assert [match["likely"] for match in answer["matches"]] == [likely(match["match"]) for match in answer["matches"]]
    assert {"very likely", "unlikely"} <= {match["likely"] for match in answer["matches"]}


def test_what_is_not_likely_enough_is_left_out(index):
    text = dmuh("search", index, "--text", TEXTS[0], "-k", 96, "--at-least", 0.8).stdout
    assert 0 < text.count("very likely") == text.count(".png") < 96
    assert "\na red circle (about " not in text  # it is the first line
    assert text.startswith("a red circle (about ")
    far = dmuh("search", index, "--text", TEXTS[0], "--at-least", 1).stdout
    assert "nothing close enough: the best answer shares a label with a probability of 0.9" in far


def test_words_that_the_model_never_saw_find_nothing_for_sure(index, hasher):
    unsure = hasher.encode_texts(["axolotl", "a red axolotl"]).uncertainty
    assert (unsure[0] == 0.5).all()
    assert (unsure[1] < 0.5).any()
    (answer,) = json.loads(dmuh("search", index, "--text", "axolotl", "-k", 96, "--json").stdout)
    assert {match["distance"] for match in answer["matches"]} == {12}  # half of the bits, whatever the image
    said = dmuh("search", index, "--text", "axolotl", "--at-least", 0.5).stdout
    assert "nothing close enough: the best answer shares a label with a probability of 0." in said
    assert ".png" not in said


def test_a_sheet_begins_with_the_text(index, tmp_path):
    long = "a red circle " * 30
    dmuh("search", index, "--text", TEXTS[0], "--text", long, "-k", 2, "--sheet", tmp_path / "sheet.png")
    drawn = np.asarray(Image.open(tmp_path / "sheet.png")).astype(int)
    first = drawn[8:104, 8:104]
    assert (first[0, 0] == (238, 241, 244)).all()  # paper
    assert 20 < (first.sum(axis=2) < 300).sum() < 2000  # and ink
    second = drawn[8 + 138 : 104 + 138, 8:104]
    assert (first.sum(axis=2) < 300).sum() < (second.sum(axis=2) < 300).sum()  # cut where the square ends
    assert (second[-4:] == (238, 241, 244)).all()


def test_mistakes_are_told_in_a_sentence(index, coloured, digit_run, photos, tmp_path):
    which = "give query images, or ids of images by --id, or codes by --code, or sentences by --text"
    assert which in refused("search", index, "--text", "a", "--id", 1)
    assert which in refused("search", index)
    assert "--text must say what to look for, got an empty one" in refused("search", index, "--text", " ")
    assert "at most 10,000 characters, got 10,001" in refused("search", index, "--text", "a" * 10_001)
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", tmp_path / "digits")
    assert (
        "--text cannot be used: this model (dmuh) learned from images alone: train one for texts by dmuh train --texts"
    ) in refused("search", tmp_path / "digits", "--text", "a one")
    rows = "".join(f"{file},{n:016x}\n" for n, file in enumerate(sorted(photos.rglob("*.png"))))
    (tmp_path / "hashes.csv").write_text(f"path,hash\n{rows}")
    dmuh("index", tmp_path / "hashes.csv", "--hash", "phash", "--out", tmp_path / "hashes")
    assert "texts cannot be searched with here, as codes are phash" in refused(
        "search", tmp_path / "hashes", "--text", "a one"
    )


def test_a_search_by_words_needs_no_torch(index):
    program = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['dmuh', *sys.argv[1:]];from dmuh.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "search", index, "--text", "a red circle", "-k", "3", "--json"]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [kind(match["path"]) for match in json.loads(result.stdout)[0]["matches"]] == ["red circle"] * 3


def test_the_codes_of_a_run_and_its_export_are_the_same(coloured, hasher):
    run = Hasher.load(coloured / "run")
    assert run.encode_texts(TEXTS) == hasher.encode_texts(TEXTS)
    assert run.encode_texts(TEXTS).contents is None
    assert run.digest == hasher.digest


def test_a_folder_is_opened_with_a_model_and_follows_it(coloured, hasher, tmp_path):
    folder = shutil.copytree(coloured / "pictures", tmp_path / "photos")
    with open_with_model(folder, coloured / "run") as opened:
        assert len(opened.catalogue) == 96
        assert opened.by_class is None
        codes = opened.catalogue.codes()
        found = HammingIndex().add(codes).search(hasher.encode_texts(TEXTS[0]), 10)
        paths = {id_: path for path, (id_, _) in opened.catalogue.files().items()}
        assert [kind(paths[id_]) for id_ in found.ids[0].tolist()] == ["red circle"] * 10
        with pytest.raises(RunError, match="another process has"), open_with_model(folder, coloured / "model"):
            pass
        assert len(opened.features()) == 96
    (folder / "red" / "circle-00.png").unlink()
    shutil.copy(folder / "blue" / "square-05.png", folder / "new.png")
    with open_with_model(folder, coloured / "model") as opened:  # the export has the same codes
        files = opened.catalogue.files()
        assert len(files) == 96
        assert "new.png" in files
        assert "red/circle-00.png" not in files
        assert set(opened.catalogue.codes().ids.tolist()) - set(codes.ids.tolist()) == {files["new.png"][0]}


def test_each_model_of_a_folder_keeps_its_own_codes(coloured, digit_run, photos, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "photos")
    for model, bits in ((coloured / "model", 24), (digit_run.path, 20), (coloured / "model", 24)):
        with open_with_model(folder, model, tmp_path / "state") as opened:
            assert opened.catalogue.n_bits == bits
            assert len(opened.catalogue) == 20
    assert sum(path.name.startswith("model-") for path in (tmp_path / "state").iterdir()) == 2
    assert not (folder / ".dmuh").exists()


def test_a_model_that_cannot_be_opened_with_is_refused(photos, vectors, tmp_path):
    settings = ("--dataset", "features", "--data", vectors, "--bits", 8, "--epochs", 1, "--set", "batch_size=16")
    dmuh("train", *settings, "--out", tmp_path / "run")
    refusal = pytest.raises(ConfigError, match="takes feature vectors, and only images can be opened")
    with refusal, open_with_model(photos, tmp_path / "run"):
        pass
    assert "does not exist" in refused("open", photos, "--model", tmp_path / "none", "--port", 0)
