"""Writes that cannot be made: a sentence and a status for each, nothing stored; and names that are not ours."""

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from serving import client_of, picture
from test_catalogue import make_codes

from dmuh.catalogue import Catalogue, Entry
from dmuh.catalogue.writer import Addition, Deletion, Restoration, Writer, is_added_name, new_file_name
from dmuh.errors import RequestError
from dmuh.server.images.upload_check import check_upload

PNG = {"content-type": "image/png"}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP"])
def test_names_that_the_service_gives_are_known_as_its_own(kind):
    assert is_added_name(new_file_name(check_upload(picture(kind), 10_000)[0].suffix))


@pytest.mark.parametrize("name", [
    "holiday.png", "../0f8fad5bd9cb469fa16570867728950e.png", "0f8fad5bd9cb469fa16570867728950e.png/x",
    "0f8fad5bd9cb469fa16570867728950e", "0f8fad5bd9cb469fa16570867728950e.exe", "0F8FAD5BD9CB469FA16570867728950E.png",
    "0f8fad5bd9cb169fa16570867728950e.png", "0f8fad5bd9cb469fa16570867728950e.png\n", "",
])  # fmt: skip
def test_other_names_are_not(name):
    assert not is_added_name(name)


@pytest.mark.parametrize("path", ["../outside.png", "/{tmp}/outside.png", "mine.png"])
def test_a_crafted_catalogue_reaches_no_file_but_the_services_own(tmp_path, path, caplog):
    added = tmp_path / "added"
    added.mkdir()
    for file in (tmp_path / "outside.png", added / "mine.png"):
        file.write_text("mine")
    with Catalogue(tmp_path / "catalogue.sqlite", 12) as catalogue:
        catalogue.add([Entry(path.replace("{tmp}", str(tmp_path)), added=True)], make_codes(1))
        writer = Writer(catalogue, added, lambda *_: None)
        assert writer.write([Deletion(1)]) == [1]
        assert len(catalogue) == 0
        writer.close()
    assert (tmp_path / "outside.png").exists()
    assert (added / "mine.png").exists()
    assert "not a name that this service gives" in caplog.text


def test_what_was_deleted_is_brought_back_as_it_was_for_a_while(tmp_path, monkeypatch):
    added = tmp_path / "added"
    added.mkdir()
    told = []
    with Catalogue(tmp_path / "catalogue.sqlite", 12) as catalogue:
        writer = Writer(catalogue, added, lambda new, gone, labels: told.append((new, gone, labels)))
        code = make_codes(1)
        (id_,) = writer.write([Addition(b"content", ".png", code, ["sea"], {"name": "a"})])
        catalogue.add([Entry("mine.png", ["sky"])], make_codes(1))
        rows = [catalogue.row(id_), catalogue.row(id_ + 1)]
        stored = catalogue.codes()
        writer.write([Deletion(id_), Deletion(id_ + 1)])
        assert len(catalogue) == 0
        assert catalogue.forgotten() == {"mine.png"}
        assert len(list(added.iterdir())) == 1
        assert writer.write([Restoration(id_), Restoration(id_ + 1)]) == [id_, id_ + 1]
        assert [catalogue.row(id_), catalogue.row(id_ + 1)] == rows
        assert catalogue.labels() == {"sea": 1, "sky": 1}
        assert catalogue.forgotten() == set()
        new, gone, labels = told[-1]
        assert ([int(codes.ids[0]) for codes in new], gone, labels) == ([id_, id_ + 1], [], {"sea", "sky"})
        assert np.array_equal(new[0].bits, stored.bits[:1])
        assert np.array_equal(new[0].levels, stored.levels[:1])
        again = writer.write([Restoration(id_)])
        assert str(again[0]) == f"image {id_} was not deleted in the last ten minutes"
        writer.write([Deletion(id_)])
        monkeypatch.setattr("dmuh.catalogue.writer._UNDO_SECONDS", -1.0)
        writer.write([Deletion(id_ + 1)])  # each change ends what is too long ago
        assert list(added.iterdir()) == []
        assert isinstance(writer.write([Restoration(id_)])[0], RequestError)


def test_a_locked_catalogue_is_a_503_and_reading_goes_on(digit_hasher, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dmuh.catalogue.database._WAIT", 0.05)
    state = tmp_path / "state"
    with client_of(digit_hasher, folder, state) as client:
        other = sqlite3.connect(state / "catalogue.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for answer in (client.post("/api/images", content=picture(), headers=PNG), client.delete("/api/images/1")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json() == {"error": "another program is changing the catalogue: try again in a moment"}
        assert list((state / "added").iterdir()) == []
        assert client.get("/api/images/1").status_code == 200
        other.execute("COMMIT")
        other.close()
        assert client.post("/api/images", content=picture(), headers=PNG).status_code == 201
        assert client.delete("/api/images/1").status_code == 204
        assert client.get("/api/about").json()["images"] == 20


def test_a_damaged_row_is_a_500_and_others_are_answered(digit_hasher, folder, tmp_path, caplog):
    state = tmp_path / "state"
    with client_of(digit_hasher, folder, state) as client:
        other = sqlite3.connect(state / "catalogue.sqlite", isolation_level=None)
        other.execute("UPDATE images SET path = 'elsewhere.png' WHERE id = 3")
        other.close()
        for answer in (client.get("/api/images/3"), client.get("/api/search?id=3"), client.delete("/api/images/3")):
            assert answer.status_code == 500
            assert "the catalogue cannot be used: what stands in it was altered" in answer.json()["error"]
        assert client.get("/api/images/4").status_code == 200
        assert client.delete("/api/images/4").status_code == 204
    assert "Traceback" not in caplog.text
    assert f"{state / 'catalogue.sqlite'}: what stands in it was altered" in caplog.text


FULL = """
import json, os, resource, sys
from pathlib import Path
import numpy as np
from dmuh.codes import Codes
from dmuh.errors import RequestError
from dmuh.catalogue import Catalogue
from dmuh.catalogue.writer import Addition, Writer

state, of, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
added = state / "added"
added.mkdir(parents=True)
code = Codes.from_outputs(np.ones((1, 12)), np.full((1, 12), 0.25, np.float32))
upload = bytes(size), ".png", code
with Catalogue(state / "catalogue.sqlite", 12) as catalogue:
    writer = Writer(catalogue, added, lambda *_: None)
    kept = writer.write([Addition(*upload)])
    largest = max(file.stat().st_size for file in state.iterdir()) if of == "catalogue" else size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    try:
        while True:
            kept += writer.write([Addition(*upload, ["x" * 2000])] * 4)
    except RequestError as error:
        said = [error.status, str(error)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    names = {row.path.decode() for row in catalogue.listed("id", 1000)}
    assert names == set(os.listdir(added)), "a file without a row, or the other way"
    assert len(catalogue) == len(kept) == catalogue.codes().ids.size
    kept += writer.write([Addition(*upload)])
    assert len(catalogue) == len(kept)
print(json.dumps(said))
"""


@pytest.mark.parametrize(("of", "size", "sentence"), [
    ("catalogue", 100, "there is no room left for the catalogue: disk I/O error"),
    ("images", 10_000_000, "there is no room left for images: File too large"),
])  # fmt: skip
def test_a_full_disk_is_a_507_and_nothing_is_stored(tmp_path, of, size, sentence):
    command = [sys.executable, "-c", FULL, str(tmp_path / "state"), of, str(size)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [507, sentence]
