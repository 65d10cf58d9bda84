"""Images are answered with sentences: those about the images of an index, which come and go with them."""

import json
from pathlib import Path

import numpy as np
import pytest

from commands import dmuh, refused
from dmuh import Collection, Hasher
from dmuh.encoder.captions import read_captions
from dmuh.files import load_arrays
from dmuh.index.soft import pair_distances, shown


@pytest.fixture
def listed(coloured, tmp_path) -> Path:
    """The first 60 pictures of the list, of which one has two sentences, in a list of the test's own."""
    header, *rows = (coloured / "list.csv").read_text().splitlines()
    rows = [f"{coloured}/{row}" for row in rows[:60]]
    path, labels, _ = rows[0].split(",")
    (tmp_path / "list.csv").write_text("\n".join([header, *rows, f"{path},{labels},something red and round"]) + "\n")
    return tmp_path / "list.csv"


@pytest.fixture
def index(coloured, listed) -> Path:
    options = ("--dataset", "csv", "--texts", "caption")
    dmuh("index", coloured / "model", listed, *options, "--out", listed.parent / "index")
    return listed.parent / "index"


def answer(index: Path, *options: object) -> dict:
    (found,) = json.loads(dmuh("search", index, *options, "--captions", "--json").stdout)
    return found


def sentences(index: Path) -> set[str]:
    return {text["text"] for text in answer(index, "--id", 1, "-k", 1000)["texts"]}


def test_an_image_is_answered_with_what_it_shows(index, coloured):
    right = 0
    pictures = sorted((coloured / "pictures").rglob("*.png"))
    answers = json.loads(dmuh("search", index, *pictures, "--captions", "-k", 1, "--json").stdout)
    for picture, found in zip(pictures, answers, strict=True):
        assert found["query"] == str(picture)
        colour, shape = picture.parent.name, picture.stem.split("-")[0]
        right += found["texts"][0]["text"].endswith(f"{colour} {shape}")
    assert right > 0.6 * len(pictures)  # by chance a sixth
    text = dmuh("search", index, pictures[0], "--captions", "-k", 2).stdout
    assert text.splitlines()[0] == str(pictures[0])
    assert "very likely" in text


@pytest.mark.parametrize("ranking", ["soft", "hamming"])
def test_distances_and_probabilities_are_those_from_images_to_texts(index, coloured, ranking):
    hasher, collection = Hasher.load(coloured / "model"), Collection(index)
    with collection.reading() as catalogue:
        captions = read_captions(catalogue, hasher)
    assert captions.codes == hasher.encode_texts(captions.sentences).stored()
    picture = next((coloured / "pictures").rglob("*.png"))
    query = hasher.encode(picture)
    if ranking == "soft":
        distances = shown(pair_distances(query, captions.codes))[0]
    else:
        distances = np.bitwise_count(query.bits ^ captions.codes.bits).sum(axis=1)
    found = answer(index, picture, "--ranking", ranking, "-k", 1000)["texts"]
    assert [text["distance"] for text in found] == pytest.approx(sorted(distances.tolist()), abs=1e-4)
    curve = hasher.texts.match_of_images["hamming" if ranking == "hamming" else "soft-1"]
    assert [text["match"] for text in found] == pytest.approx(curve([text["distance"] for text in found]), abs=2e-4)
    far = dmuh("search", index, picture, "--captions", "--ranking", ranking, "--at-least", 1).stdout
    assert "nothing close enough: the best answer shares a label with a probability of" in far


def test_sentences_come_and_go_with_their_images(index, listed, coloured):
    both = {"a red circle", "something red and round"}
    assert both <= sentences(index)
    found = answer(index, "--id", 1, "-k", 1000)["texts"]
    about = {text["text"]: text["images"] for text in found}
    items = Collection(index).items()
    assert about["something red and round"] == [0]
    assert all("red" in items[id_].path and "circle" in items[id_].path for id_ in about["a red circle"])
    dmuh("index", index, items[0].path, "--remove")
    assert "something red and round" not in sentences(index)
    header, *rows = listed.read_text().splitlines()
    rows[5] = rows[5].rsplit(",", 1)[0] + ",the sky is blue here"
    listed.write_text("\n".join([header, *rows[:-1]]) + "\n")
    dmuh("index", index, "--sync")
    assert "the sky is blue here" in sentences(index)
    more = listed.parent / "more.csv"
    last = (coloured / "list.csv").read_text().splitlines()[-1].split(",")
    more.write_text(f"path,label,caption\n{coloured}/{last[0]},{last[1]},a late one\n")
    dmuh("index", index, more, "--add", "--dataset", "csv", "--texts", "caption")
    assert "a late one" in sentences(index)


def test_a_sentence_of_several_lines_is_one(coloured, listed):
    header, *rows = listed.read_text().splitlines()
    broken = rows[3].rsplit(",", 1)[0] + ',"a red shape\nwith corners"'
    listed.write_text("\n".join([header, *rows[:3], broken, *rows[4:]]) + "\n")
    folder = listed.parent / "broken"
    dmuh("index", coloured / "model", listed, "--dataset", "csv", "--texts", "caption", "--out", folder)
    found = sentences(folder)
    assert "a red shape with corners" in found
    assert not {"a red shape", "with corners"} & found
    assert "something red and round" in found  # of another row of its image


def test_the_file_of_codes_is_made_again(index):
    before, file = answer(index, "--id", 3), index / "texts.safetensors"
    checksum = load_arrays(file, "texts of a collection", 1).checksum
    file.unlink()
    assert answer(index, "--id", 3) == before
    dmuh("index", index, "--sync")
    assert load_arrays(file, "texts of a collection", 1).checksum == checksum
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "was altered after it was written" in refused("search", index, "--id", 3, "--captions")


def test_mistakes_are_told_in_a_sentence(index, coloured, digit_run, photos, tmp_path):
    assert "leave out --text, --index and --sheet" in refused("search", index, "--text", "a", "--captions")
    dmuh("index", coloured / "model", coloured / "pictures", "--dataset", "folder", "--out", tmp_path / "plain")
    assert not (tmp_path / "plain" / "texts.safetensors").exists()
    assert "there are no sentences about the images: index a list of them with --texts" in refused(
        "search", tmp_path / "plain", "--id", 3, "--captions"
    )
    dmuh("index", digit_run.path, photos, "--out", tmp_path / "digits")
    assert "captions cannot be searched: this model (dmuh) learned from images alone" in refused(
        "search", tmp_path / "digits", "--id", 3, "--captions"
    )
