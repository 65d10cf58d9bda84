"""dmuh review: what it reviews, the lists that it writes, and the decisions that come back."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

import dmuh as package
from commands import dmuh, refused
from dmuh.catalogue import Catalogue, Decision, Entry
from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import DataError
from dmuh.features import FeatureNetwork, folder_features
from dmuh.images import Reading
from dmuh.review import (
    Labelled,
    Suspect,
    keep_decisions,
    kept_decisions,
    of_catalogue,
    of_folder,
    of_index,
    read_decisions,
    suspects_of,
    write_labels,
    write_suspects,
)
from tiny import noise, tiny


@pytest.fixture
def mistaken(tmp_path):
    """Feature vectors in three clusters, the label of one of them wrong: the data set's folder, and which it is."""
    rng = np.random.default_rng(0)
    classes = np.arange(120) % 3
    folder = tmp_path / "mistaken"
    folder.mkdir()
    vectors = 3 * rng.normal(size=(3, 16))[classes] + rng.normal(size=(120, 16))
    np.save(folder / "features.npy", vectors.astype("f4"))
    classes[7] = 2  # in place of 1
    np.save(folder / "labels.npy", classes)
    return folder


def rows_of(file):
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def labelled(paths, names, classes=("cat", "dog", "sea")):
    labels = np.array([[name in row for name in classes] for row in names], np.uint8)
    vectors = np.zeros((len(paths), 2), np.float32)
    return Labelled(list(map(str, paths)), labels, classes, vectors, "features", np.arange(len(paths)))


# -- the command -----------------------------------------------------------------------------------------------------


def test_a_list_of_suspects_is_printed_and_written(mistaken, tmp_path):
    out = tmp_path / "suspects.csv"
    said = dmuh("review", mistaken, "--dataset", "features", "--out", out).stdout
    assert "labels that are wrong with a probability of 0.5 or more" in said
    assert "1 of 120 images listed; about 1 labels are wrong, judged by features" in said
    (row,) = rows_of(out)
    assert (row["path"], row["labels"], row["suggested"], row["decision"]) == ("image 7", "2", "1", "")
    assert float(row["probability"]) > 0.5
    assert row["in_words"].endswith("wrong")
    assert str(out) in said


def test_how_many_are_listed(mistaken):
    def listed(*options):
        answer = json.loads(dmuh("review", mistaken, "--dataset", "features", "--json", *options).stdout)
        assert answer["images"] == 120
        return [suspect["path"] for suspect in answer["suspects"]]

    assert listed() == ["image 7"]
    everything = listed("--at-least", "0")
    assert (len(everything), everything[0]) == (120, "image 7")
    assert listed("--at-least", "0", "-n", "3") == everything[:3]


def test_the_seed_changes_what_is_replaced(mistaken):
    everything = ("review", mistaken, "--dataset", "features", "--json", "--at-least", "0")
    assert dmuh(*everything).stdout == dmuh(*everything, "--seed", "0").stdout
    assert dmuh(*everything).stdout != dmuh(*everything, "--seed", "1").stdout


def test_a_run_is_reviewed_by_its_data_set(mistaken, tmp_path):
    run = tmp_path / "run"
    dmuh("train", "--dataset", "features", "--data", mistaken, "--out", run, "--bits", "8", "--epochs", "1")
    assert "image 7" in dmuh("review", run).stdout
    moved = mistaken.rename(tmp_path / "elsewhere")
    assert "does not exist" in refused("review", run)
    assert "image 7" in dmuh("review", run, "--data", moved).stdout


def test_decisions_make_a_corrected_list(mistaken, tmp_path):
    suspects, out = tmp_path / "suspects.csv", tmp_path / "labels.csv"
    dmuh("review", mistaken, "--dataset", "features", "--out", suspects, "--at-least", "0", "-n", "3")
    rows = rows_of(suspects)
    for row, decision in zip(rows, ("accept", "skip", "0; 2"), strict=True):
        row["decision"] = decision
    with suspects.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    said = dmuh("review", mistaken, "--dataset", "features", "--apply", suspects, "--out", out).stdout
    assert said == f"3 decisions; 2 of 120 images have other labels in {out}\n"
    labels = {row["path"]: row["labels"] for row in rows_of(out)}
    assert len(labels) == 120
    assert labels["image 7"] == "1"
    assert labels[rows[1]["path"]] == rows[1]["labels"]
    assert labels[rows[2]["path"]] == "0;2"
    answer = dmuh("review", mistaken, "--dataset", "features", "--apply", suspects, "--out", tmp_path / "2", "--json")
    assert json.loads(answer.stdout) == {"images": 120, "decisions": 3, "changed": 2, "kept": None}


def test_what_cannot_be_done_is_one_sentence(mistaken, photos, tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("mine")
    vectors = ("review", mistaken, "--dataset", "features")
    assert "there.csv exists already: nothing is replaced" in refused(*vectors, "--out", there)
    assert "there.csv exists already: nothing is replaced" in refused(*vectors, "--page", there)
    assert there.read_text() == "mine"
    assert "--apply writes the corrected list: say where by --out" in refused(*vectors, "--apply", there)
    assert "give --apply, too" in refused(*vectors, "--state", tmp_path)
    new = ("--out", tmp_path / "new.csv")
    assert "has no column decision and path" in refused(*vectors, "--apply", there, *new)
    assert "cannot read the decisions" in refused(*vectors, "--apply", tmp_path / "none.csv", *new)
    assert "has no catalogue" in refused(*vectors, "--apply", tmp_path, *new)
    assert "--by is for an index, got 'codes'" in refused(*vectors, "--by", "codes")
    assert "is none" in refused(*vectors, "--data", tmp_path)
    assert "does not exist" in refused("review", tmp_path / "nothing")
    said = refused("review", photos, "--label-column", "kind")
    assert f"--label-column is for a CSV list, but {photos} is a folder" in said
    assert "has no labels that could be wrong" in refused("review", photos, "--dataset", "images")
    assert not (tmp_path / "new.csv").exists()


def test_an_index_is_reviewed_by_its_codes(digit_run, photos, tmp_path):
    own, index = tmp_path / "photos", tmp_path / "index"
    shutil.copytree(photos, own)
    dmuh("index", digit_run.path, own, "--dataset", "folder", "--out", index)
    said = dmuh("review", index, "--by", "codes", "--at-least", "0", "-n", "2").stdout
    assert "2 of 20 images listed" in said
    assert "judged by codes" in said
    assert "--by must be features or codes, got 'looks'" in refused("review", index, "--by", "looks")
    (own / "ones" / "03.png").unlink()
    assert "judged by codes" in dmuh("review", index).stdout
    assert "03.png, an image of" in refused("review", index, "--by", "features")


def test_an_index_without_labels_is_refused(digit_run, photos, tmp_path):
    dmuh("index", digit_run.path, photos, "--out", tmp_path / "index")
    assert "labels can be told wrong only where there are two or more" in refused("review", tmp_path / "index")


@pytest.mark.long
def test_files_are_reviewed_by_imagenet_features(shapes, digit_run, tmp_path):
    root = tmp_path / "shapes"
    for n, pixels in enumerate(shapes.images):
        file = root / ("disc" if n % 2 else "box") / f"{n:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    page = tmp_path / "page.html"
    folder = json.loads(dmuh("review", root, "--at-least", "0", "--json", "--page", page).stdout)
    assert page.read_text().count("<img") == 24
    (root / "labels.csv").write_text(
        "path,label\n"
        + "".join(f"{file.relative_to(root)},{file.parent.name}\n" for file in sorted(root.rglob("*.png")))
    )
    by_list = json.loads(dmuh("review", root / "labels.csv", "--at-least", "0", "--json").stdout)
    dmuh("index", digit_run.path, root, "--dataset", "folder", "--out", tmp_path / "index")
    by_index = json.loads(dmuh("review", tmp_path / "index", "--at-least", "0", "--json").stdout)
    assert len(folder["suspects"]) == 24
    assert folder == by_list == by_index


# -- what is reviewed ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    lower = tiny(freeze="all")
    content = to_onnx(FrozenPart(lower))
    return FeatureNetwork("tiny", 8, lower.backbone.preprocess, lambda: OnnxNetwork(content))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "album"
    for n, pixels in enumerate(noise(7, 12)):
        file = root / ("even" if n % 2 == 0 else "odd") / f"{n}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return root


def test_the_labels_of_a_folder_are_its_folders(folder, network):
    features = folder_features(folder, network=network)
    found = of_folder(folder, Reading(), features)
    assert (found.classes, found.by) == (("even", "odd"), "features")
    assert [found.names(row)[0] for row in found.labels] == [path.parts[0] for path in features.paths]
    assert found.paths == [str(folder / path) for path in features.paths]
    np.testing.assert_array_equal(found.vectors, features.vectors)


def test_what_is_served_is_reviewed_by_features_or_codes(folder, network, tmp_path):
    features = folder_features(folder, network=network)
    rng = np.random.default_rng(0)
    codes = Codes.from_outputs(rng.standard_normal((6, 12), np.float32), rng.random((6, 12), np.float32) / 2)
    entries = [Entry(str(path), [path.parts[0]]) for path in features.paths[:5]]
    with Catalogue(tmp_path / "catalogue.sqlite", 12) as catalogue:
        ids = catalogue.add([*entries, Entry("new.png", ["odd"], added=True)], codes)
        by_codes = of_catalogue(catalogue, folder)
        assert (by_codes.by, by_codes.ids.tolist()) == ("codes", ids)
        assert by_codes.vectors.shape == (6, 12)
        np.testing.assert_array_equal(by_codes.vectors > 0, codes.unpack() == 1)
        by_features = of_catalogue(catalogue, folder, features)
        assert (by_features.by, by_features.ids.tolist()) == ("features", ids[:5])
        np.testing.assert_array_equal(by_features.vectors, features.vectors[:5])
        assert by_features.paths == [str(folder / path) for path in features.paths[:5]]
        first = suspects_of(by_features)
        assert sorted(suspect.id for suspect in first) == ids[:5]
        assert suspects_of(by_features, at_least=2) == []


def test_an_index_keeps_its_ids(digit_run, photos, tmp_path):
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", tmp_path / "index")
    collection = Collection(tmp_path / "index")
    found = of_index(collection, Reading(), "codes")
    items = collection.items()
    assert [items[id_].path for id_ in found.ids.tolist()] == found.paths
    assert package.Collection is Collection


# -- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_comes_back_with_what_was_decided(tmp_path):
    paths = [tmp_path / "a.png", tmp_path / "sub" / "b.png", "/elsewhere/c.png", "image 4"]
    images = labelled(paths, [["cat"], ["cat", "dog"], [], ["sea"]])
    suspects = [
        Suspect(n, path, images.names(row), ("sea",), 0.9)
        for n, (path, row) in enumerate(zip(images.paths, images.labels, strict=True))
    ]
    decided = {
        images.paths[0]: Decision("accept", ("sea",)),
        images.paths[1]: Decision("own", ("dog", "moon")),
        images.paths[3]: Decision("skip", ("sea",)),
    }
    file = tmp_path / "suspects.csv"
    write_suspects(file, suspects, decided)
    rows = rows_of(file)
    assert [row["path"] for row in rows] == ["a.png", "sub/b.png", "/elsewhere/c.png", "image 4"]
    assert [row["labels"] for row in rows] == ["cat", "cat;dog", "", "sea"]
    assert [row["decision"] for row in rows] == ["accept", "dog;moon;", "", "skip"]
    assert read_decisions(file, images) == decided
    assert write_labels(tmp_path / "labels.csv", images, decided) == 2
    assert [row["labels"] for row in rows_of(tmp_path / "labels.csv")] == ["sea", "dog;moon", "", "sea"]
    with pytest.raises(DataError, match="exists already: nothing is replaced"):
        write_suspects(file, [])


def test_a_list_of_the_page_names_images_from_their_folder_on(tmp_path):
    images = labelled(["/photos/ones/1.png", "/photos/zeros/1.png"], [["cat"], ["dog"]])
    (tmp_path / "list.csv").write_text("path,decision\nones/1.png,skip\n")
    assert read_decisions(tmp_path / "list.csv", images) == {"/photos/ones/1.png": Decision("skip", ("cat",))}
    (tmp_path / "list.csv").write_text("path,decision\n1.png,skip\n")
    with pytest.raises(DataError, match=r"line 2: 1\.png is no image"):
        read_decisions(tmp_path / "list.csv", images)


def test_a_corrected_list_is_a_data_set(folder, network, tmp_path):
    found = of_folder(folder, Reading(), folder_features(folder, network=network))
    write_labels(tmp_path / "labels.csv", found, {found.paths[0]: Decision("own", ("odd", "strange"))})
    data = package.load_dataset("csv", tmp_path / "labels.csv")
    assert [data.whole_path(n) for n in range(7)] == found.paths
    assert data.label_names(0) == ["odd", "strange"]
    assert [data.label_names(n) for n in range(1, 7)] == [list(found.names(row)) for row in found.labels[1:]]


def test_names_that_are_not_unicode_come_back(tmp_path):
    images = labelled([tmp_path / os.fsdecode(b"caf\xe9.png")], [["cat"]])
    write_suspects(tmp_path / "list.csv", [Suspect(0, images.paths[0], ("cat",), ("dog",), 0.6)])
    text = (tmp_path / "list.csv").read_text()
    assert r"caf\xe9.png" in text
    (tmp_path / "list.csv").write_text(text.rstrip("\n") + "accept\n")
    assert read_decisions(tmp_path / "list.csv", images) == {images.paths[0]: Decision("accept", ("dog",))}


@pytest.mark.parametrize(("content", "said"), [
    ("path,labels,decision\nother.png,cat,skip\n", "line 2: other.png is no image of what is reviewed"),
    ("path,labels,decision\na.png,cat,accept\n", "line 2: accept needs a column suggested"),
    ("path,labels,decision\na.png,cat\n", "line 2: not as many columns as the header has"),
    ("path,labels\na.png,cat\n", "has no column decision"),
    (b"path,decision\n\xff\xfe,skip\n", "is not a CSV file in UTF-8"),
])  # fmt: skip
def test_a_list_that_cannot_be_read_is_said(tmp_path, content, said):
    file = tmp_path / "list.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        read_decisions(file, labelled([tmp_path / "a.png"], [["cat"]]))


def test_labels_with_semicolons_are_refused(tmp_path):
    with pytest.raises(DataError, match="none may have one: got 'a;b'"):
        write_suspects(tmp_path / "list.csv", [Suspect(0, "x.png", ("a;b",), ("c",), 0.6)])
    assert not (tmp_path / "list.csv").exists()


def test_what_is_wrong_with_the_labels_in_words():
    suspect = Suspect(0, "x.png", ("cat", "dog"), ("dog", "sea"), 0.97)
    assert (suspect.missing, suspect.too_much) == (("sea",), ("cat",))
    words = [Suspect(0, "x.png", (), (), p).in_words for p in (0.97, 0.9, 0.6, 0.3, 0.1)]
    assert words == [
        "almost certainly wrong", "very probably wrong", "probably wrong", "possibly wrong", "probably right"
    ]  # fmt: skip


# -- decisions in the catalogue --------------------------------------------------------------------------------------


def test_decisions_are_kept_in_the_catalogue_and_applied_from_it(folder, network, tmp_path):
    state = tmp_path / "state" / "look"
    found = of_folder(folder, Reading(), folder_features(folder, network=network))
    below = [os.path.relpath(path, folder) for path in found.paths]
    with Catalogue(state / "catalogue.sqlite", 12) as catalogue:
        codes = Codes.from_outputs(np.random.default_rng(0).standard_normal((7, 12), np.float32))
        catalogue.add([Entry(path, [path.split("/")[0]]) for path in below], codes)
        catalogue.note(source="folder", folder=str(folder))
        decided = {found.paths[2]: Decision("own", ("odd",)), "/not/there.png": Decision("skip", ("even",))}
        assert keep_decisions(catalogue, decided) == 1
        assert kept_decisions(catalogue) == {found.paths[2]: Decision("own", ("odd",))}
        assert write_labels(tmp_path / "labels.csv", found, kept_decisions(catalogue)) == 1


def test_the_command_takes_decisions_from_the_catalogue_and_keeps_them_there(digit_run, photos, tmp_path):
    index = tmp_path / "index"
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", index)
    file = tmp_path / "decisions.csv"
    file.write_text(f"path,decision\n{photos}/ones/03.png,zeros;\n{photos}/ones/04.png,skip\n")
    said = dmuh("review", index, "--by", "codes", "--apply", file, "--state", index, "--out", tmp_path / "1.csv").stdout
    assert f"2 decisions, 2 kept in {index}; 1 of 20 images have other labels" in said
    said = dmuh("review", index, "--by", "codes", "--apply", index, "--out", tmp_path / "2.csv").stdout
    assert "2 decisions; 1 of 20 images have other labels" in said
    assert (tmp_path / "1.csv").read_text() == (tmp_path / "2.csv").read_text()
