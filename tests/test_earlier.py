"""Folders that earlier versions wrote are converted when they are opened, and nothing in them is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import dmuh
from dmuh.catalogue import Catalogue, Decision, Entry
from dmuh.collection import Collection, Source, items_of
from dmuh.errors import FormatError
from dmuh.files.documents import read_document, write_document
from earlier import FILES, write_earlier
from test_collection import NAMES, make_codes, make_dataset

IDS = [0, 1, 3]


def write(folder: Path, root: Path, **options) -> str:
    codes = make_codes(IDS)
    return write_earlier(folder, codes, items_of(codes, make_dataset(root), IDS), root / "run", "d1e5", **options)


@pytest.fixture
def expected(tmp_path) -> Collection:
    """The same as it is written now."""
    made = Collection(tmp_path / "now")
    made.write(make_codes(IDS), make_dataset(tmp_path), tmp_path / "run", "d1e5")
    made.build_index()
    return made


@pytest.fixture
def old(tmp_path) -> Collection:
    write(tmp_path / "old", tmp_path)
    return Collection(tmp_path / "old")


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if not file.name.endswith((".sha256", ".lock"))}


def test_it_opens_as_what_it_was(old, expected, tmp_path):
    digest = read_document(old.path / "collection.json", "dmuh collection")["codes"]
    assert (old.exists, old.has_index) == (True, True)
    assert old.load_codes() == expected.load_codes()
    assert old.items() == expected.items()
    assert old.model() == (tmp_path / "run", "d1e5")
    assert old.codes_digest() == digest, "a copy in Milvus is known by it"
    assert old.uncertainty_percentiles() == expected.uncertainty_percentiles()
    assert old.load_index().search(make_codes(IDS), 1, ranking="hamming").ids.tolist() == [[0], [1], [3]]
    assert names(old.path) == names(expected.path) == {"catalogue.sqlite", "index.safetensors"}


def test_codes_without_an_index_have_none_afterwards(tmp_path):
    write(tmp_path / "old", tmp_path, index=False)
    old = Collection(tmp_path / "old")
    assert len(old.load_codes()) == 3
    assert not old.has_index


def test_the_first_version_opens_without_its_uncertainties(tmp_path):
    """Its codes had a number per bit, and its images their mean, which was no probability."""
    write(tmp_path / "old", tmp_path, version=None)
    old = Collection(tmp_path / "old")
    assert old.load_codes() == make_codes(IDS).plain()
    assert [item.uncertainty for item in old.items().values()] == [None] * 3
    assert old.items([1])[1].labels == ["Straße", "sky"]
    assert old.uncertainty_percentiles() is None
    assert old.load_index().search(make_codes(IDS), 1, ranking="hamming").distances.tolist() == [[0]] * 3


def service_catalogue(old: Path, root: Path, digest: str) -> None:
    """The catalogue that a service copied such a folder into, and changed."""
    codes = make_codes(IDS)
    with Catalogue(old / "catalogue.sqlite", 12) as catalogue:
        items = items_of(codes, make_dataset(root), IDS)
        entries = [
            Entry(os.path.relpath(i.path, root), i.labels, i.metadata, i.id, uncertainty=i.uncertainty) for i in items
        ]
        catalogue.add(entries, codes.stored())
        catalogue.note(model="d1e5", source=digest, root=str(root))
        catalogue.remove(1)
        catalogue.add([Entry("new.png", ["sea"], added=True)], make_codes([0], seed=4))
        catalogue.decide(3, Decision("own", ("sky",)))


@pytest.mark.parametrize("version", [4, 5])
def test_what_a_service_changed_is_kept(old, tmp_path, version):
    service_catalogue(old.path, tmp_path, read_document(old.path / "collection.json", "dmuh collection")["codes"])
    if version == 4:
        with Catalogue(old.catalogue_file, 12) as catalogue, catalogue.transaction() as connection:
            for statement in ("DROP TABLE changes", "DROP INDEX by_added", "PRAGMA user_version = 4"):
                connection.execute(statement)
            connection.execute("DELETE FROM about WHERE key IN ('changed', 'epoch', 'bits')")
        (old.path / "catalogue.sqlite.sha256").unlink()
    items = old.items()
    assert [Path(item.path).name for item in items.values()] == ["1.png", "4.png", "new.png"]
    assert items[4].path == str(old.path / "added" / "new.png")
    assert old.load_index().ids.tolist() == old.load_codes().ids.tolist() == [0, 3, 4]
    with old.reading() as catalogue:
        assert catalogue.decisions() == {3: Decision("own", ("sky",))}
        assert catalogue.forgotten() == {NAMES[1]}
    assert not names(old.path) & set(FILES)


def test_a_catalogue_of_other_images_is_put_aside(old, expected, tmp_path, caplog):
    service_catalogue(old.path, tmp_path, "of others")
    (old.path / "added").mkdir()
    (old.path / "added" / "new.png").write_text("an upload")
    assert old.items() == expected.items()
    assert f"it is kept in {old.path / 'before-1'}" in caplog.text
    with Catalogue(old.path / "before-1" / "catalogue.sqlite", 12) as catalogue:
        assert len(catalogue) == 3
    assert (old.path / "before-1" / "added" / "new.png").read_text() == "an upload"


@pytest.mark.parametrize(("name", "damage"), [
    ("codes.safetensors", "altered"), ("codes.safetensors", "missing"), ("items.jsonl", "altered"),
    ("items.jsonl", "missing"), ("collection.json", "altered"),
])  # fmt: skip
def test_a_damaged_one_is_refused_and_left_as_it_is(old, name, damage):
    file = old.path / name
    content = file.read_bytes()
    file.unlink() if damage == "missing" else file.write_bytes(content[:-9] + b"x" + content[-8:])
    before = {file.name: file.read_bytes() for file in old.path.iterdir()}
    with pytest.raises(FormatError):
        old.load_codes()
    assert {file.name: file.read_bytes() for file in old.path.iterdir()} == before | {".lock": b""}


def test_one_that_was_not_written_to_its_end_is_refused_and_can_be_written_again(old, tmp_path):
    about = read_document(old.path / "collection.json", "dmuh collection")
    write_document(old.path / "collection.json", "dmuh collection", about | {"finished": False})
    assert not old.has_index
    with pytest.raises(FormatError, match="was not written to its end: index the images again"):
        old.load_codes()
    old.write(make_codes([2]), make_dataset(tmp_path), tmp_path, "x")
    assert list(old.items()) == [2]
    assert not names(old.path) & set(FILES)


def test_writing_anew_does_not_lose_what_a_service_changed(old, tmp_path):
    service_catalogue(old.path, tmp_path, read_document(old.path / "collection.json", "dmuh collection")["codes"])
    with pytest.raises(Exception, match="has 1 images that were added and 1 removals and 1 decisions on labels, which"):
        old.write(make_codes([2]), make_dataset(tmp_path), tmp_path, "x")
    assert len(old.items()) == 3


KILLED = """
import os, sys
from pathlib import Path
from dmuh.catalogue import bulk
from dmuh.collection import Collection, folder

def killed(*_): os.kill(os.getpid(), 9)

match sys.argv[2]:
    case "writing": bulk.ChecksumFile = killed
    case "written": Collection._write_index = killed
    case "removing": folder.remove_earlier = killed
Collection(Path(sys.argv[1])).items()
"""


@pytest.mark.parametrize("at", ["writing", "written", "removing"])
def test_a_conversion_that_is_killed_is_finished(old, expected, at):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(old.path), at], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert old.items() == expected.items()
    assert old.load_index().ids.tolist() == IDS
    assert names(old.path) >= names(expected.path)
    assert not names(old.path) & set(FILES)


def test_an_earlier_index_is_brought_up_to_date(digit_run, digit_hasher, photos, tmp_path):
    """Its images keep their ids, and only what is new is encoded."""
    made = Collection(tmp_path / "index")
    dmuh("index", digit_run.path, photos, "--out", made.path)
    codes, items = made.load_codes(), made.items()
    stamps = [Path(item.path).stat() for item in items.values()]
    files = np.array([[id_, s.st_size, s.st_mtime_ns] for id_, s in zip(items, stamps, strict=True)])
    source = {"images": [str(photos)], "options": {}}
    old = Collection(tmp_path / "old")
    write_earlier(old.path, codes, items.values(), *made.model(), source=source, files=files)
    said = dmuh("index", old.path, "--sync").stdout
    assert said == f"20 images indexed, 0 added, 0 changed, 0 removed: {old.path}\n"
    assert old.sources() == [Source([str(photos)], {})]
    assert old.load_codes() == codes
