"""dmuh duplicates: what it prints and writes, what it moves, and what it refuses."""

import csv
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from commands import dmuh, refused
from dmuh.duplicates import find_groups, find_matches
from dmuh.errors import DataError
from dmuh.report import duplicates as report
from scenes import features_of, scene, write_album


@pytest.fixture
def album(tmp_path) -> Path:
    return write_album(tmp_path / "album")


def test_a_table_a_page_and_json_of_groups(album, tmp_path):
    features = features_of(album)
    groups = find_groups(features)
    report.write_csv(tmp_path / "d.csv", groups)
    rows = list(csv.DictReader((tmp_path / "d.csv").read_text().splitlines()))
    assert rows[0]["kind"] == "best"
    assert {row["path"] for row in rows} == {str(each.path) for each in groups[0].members}
    assert [bool(row["reason"]) for row in rows] == [True] + [False] * (len(rows) - 1)
    value = json.loads(json.dumps(report.as_json(album, len(features), groups)))
    assert (value["images"], value["duplicates"], len(value["groups"])) == (8, 4, 1)
    assert value["bytes"] == sum(each["bytes"] for each in value["groups"][0]["images"][1:])
    report.write_page(tmp_path / "d.html", album, len(features), groups)
    text = (tmp_path / "d.html").read_text()
    assert text.count("data:image/jpeg;base64,") == 5
    assert groups[0].reason in text
    assert "http" not in text.replace("http-equiv", ""), "it needs nothing else"
    (tmp_path / "mine.html").write_text("<p>mine")
    with pytest.raises(DataError, match="nothing is replaced"):
        report.write_page(tmp_path / "mine.html", album, len(features), groups)


def test_names_are_escaped_and_need_not_be_text(tmp_path):
    root = tmp_path / "album"
    root.mkdir()
    odd = [root / "<b>x<b>.png", Path(os.fsdecode(bytes(root) + b"/\xff.png"))]
    for file in odd:
        scene(0).save(file)
    groups = find_groups(features_of(root))
    report.write_page(tmp_path / "d.html", root, 2, groups)
    report.write_csv(tmp_path / "d.csv", groups)
    assert "<b>x<b>" not in (tmp_path / "d.html").read_text()
    assert "&lt;b&gt;x&lt;b&gt;.png" in (tmp_path / "d.html").read_text()
    assert "?.png" in (tmp_path / "d.csv").read_text()


def test_a_page_and_a_table_of_matches(album, tmp_path):
    features = features_of(album)
    matches = find_matches(features, features)
    report.write_matches_page(tmp_path / "m.html", album, album, len(features), matches)
    report.write_matches_csv(tmp_path / "m.csv", matches)
    assert (tmp_path / "m.html").read_text().count("<figure") == 2 * len(matches) == 16
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 9


def test_what_is_refused(album, tmp_path):
    assert "give a folder of images" in refused("duplicates")
    assert "--yes goes with --move-to" in refused("duplicates", album, "--yes")
    assert "--undo takes the folder" in refused("duplicates", album, "--undo", tmp_path)
    assert "has no journal" in refused("duplicates", "--undo", tmp_path)
    assert "is a folder: name a file" in refused("duplicates", album, "--csv", tmp_path)
    assert "does not exist" in refused("duplicates", tmp_path / "nowhere")


@pytest.mark.long
def test_a_folder_is_cleaned_and_all_is_taken_back(album, tmp_path):
    scene(0).transpose(Image.Transpose.ROTATE_90).save(album / "turned.jpg", quality=90)
    before = {path: path.read_bytes() for path in album.rglob("*.*") if path.is_file()}
    into, state = tmp_path / "away", tmp_path / "state"
    common = ["duplicates", album, "--state", state]
    said = dmuh(*common, "--move-to", into).stdout
    assert "nothing was moved: add --yes" in said
    assert not into.exists()
    assert not (album / ".dmuh").exists(), "--state says where features are kept"
    found = json.loads(dmuh(*common, "--move-to", into, "--yes", "--json").stdout)
    (group,) = found["groups"]
    others = {each["path"] for each in group["images"][1:]}
    assert others >= {"0.png", "more/copy.png", "more/half.jpg"}
    assert found["moved"] == found["duplicates"] == len(others)
    left = {path for path in album.rglob("*.*") if path.is_file()}
    assert left == before.keys() - {album / name for name in others}
    matched = json.loads(dmuh("duplicates", into, "--against", album, "--state", state / "2", "--json").stdout)
    assert {match["other"] for match in matched["matches"]} == {"more/pixels.bmp"}
    assert {match["path"] for match in matched["matches"]} == others
    fewer = json.loads(dmuh("duplicates", into, "--at-least", "0.99", "--state", state / "3", "--json").stdout)
    assert 0 < fewer["duplicates"] < len(others) - 1
    assert f"{len(others)} files moved back" in dmuh("duplicates", "--undo", into).stdout
    assert {path: path.read_bytes() for path in before} == before
    dmuh(*common, "--page", tmp_path / "d.html", "--csv", tmp_path / "d.csv")
    assert (tmp_path / "d.html").exists()
    assert (tmp_path / "d.csv").exists()
    assert "--against must be another folder" in refused("duplicates", album, "--against", album, "--state", state)


@pytest.mark.long
def test_a_training_warns_of_queries_that_are_near_training_images(tmp_path):
    for n in range(20):
        folder = tmp_path / "photos" / ("a" if n % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        scene(n).save(folder / f"{n}.png")
        scene(n).resize((120, 90)).save(folder / f"{n}-small.jpg", quality=85)
    common = ["--backbone", "efficientnet-lite0", "--epochs", 1, "--bits", 16, "--query", 0.2, "--dataset", "folder"]
    said = dmuh("train", "--data", tmp_path / "photos", "--out", tmp_path / "run", "--json", *common)
    assert json.loads(said.stdout)["near_leaks"] > 0
    (line,) = [line for line in said.stderr.splitlines() if "near duplicates of training images" in line]
    assert f"dmuh duplicates {tmp_path / 'photos'} lists such images" in line
    for file in (tmp_path / "photos").rglob("*-small.jpg"):
        file.unlink()
    said = dmuh("train", "--data", tmp_path / "photos", "--out", tmp_path / "run2", "--json", *common)
    assert "near_leaks" not in json.loads(said.stdout)
