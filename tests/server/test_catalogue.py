"""The catalogue: what goes in comes out, in the order that was asked for, also after a crash in the middle."""

import json
import os
import sqlite3
import threading

import numpy as np
import pytest

from dmuh.codes import Codes
from dmuh.errors import FormatError
from dmuh.server.catalogue import Catalogue, Entry


def make_codes(n, n_bits=12, seed=0, uncertainty=True):
    rng = np.random.default_rng(seed)
    unsure = rng.random((n, n_bits), np.float32) if uncertainty else None
    return Codes.from_outputs(rng.standard_normal((n, n_bits)), unsure)


ENTRIES = [
    Entry("a/1.png", ["sky"], {"year": "1"}),
    Entry("b/Füße 日本.jpg", ["Straße", "sky"]),
    Entry(os.fsdecode(b"caf\xe9.png"), [], id=40),
    Entry("c.png", ["sea"], added=True),
]


@pytest.fixture
def catalogue(tmp_path):
    with Catalogue(tmp_path / "state" / "catalogue.sqlite", 12) as made:
        assert made.add(ENTRIES, make_codes(4)) == [1, 2, 40, 41]
        yield made


def test_what_was_added_comes_back(catalogue):
    codes = make_codes(4)
    assert len(catalogue) == 4
    row = catalogue.row(2)
    assert os.fsdecode(row.path) == "b/Füße 日本.jpg"
    assert json.loads(row.labels) == ["Straße", "sky"]
    assert row.code == codes.bits[1].tobytes()
    assert row.uncertainty == pytest.approx(codes.image_uncertainty[1])
    np.testing.assert_array_equal(np.frombuffer(row.bit_uncertainty, np.float32), codes.uncertainty[1])
    assert json.loads(catalogue.row(1).metadata) == {"year": "1"}
    assert catalogue.row(3) is None
    again = catalogue.codes()
    assert again.ids.tolist() == [1, 2, 40, 41]
    np.testing.assert_array_equal(again.bits, codes.bits)


def test_images_are_found_by_path_and_by_label(catalogue):
    assert catalogue.id_of("a/1.png", added=False) == 1
    assert catalogue.id_of(ENTRIES[2].path, added=False) == 40
    assert catalogue.id_of("c.png", added=False) is None
    assert catalogue.id_of("c.png", added=True) == 41
    assert catalogue.id_of("\udfff", added=False) is None  # no file is called so
    assert catalogue.codes("sky").ids.tolist() == [1, 2]
    assert len(catalogue.codes("nothing")) == 0
    assert catalogue.labels() == {"Straße": 1, "sea": 1, "sky": 2}
    assert catalogue.files()["a/1.png"] == (1, None)
    assert catalogue.added_files() == {"c.png"}


def test_lists_are_in_order_and_in_parts(catalogue):
    unsure = make_codes(4).image_uncertainty
    falling = [[1, 2, 40, 41][n] for n in np.argsort(-unsure, kind="stable")]
    assert [row.id for row in catalogue.listed("uncertainty", 10)] == falling
    assert [row.id for row in catalogue.listed("uncertainty", 2, 1)] == falling[1:3]
    assert [row.id for row in catalogue.listed("uncertainty", 9, 0, "sky")] == [n for n in falling if n in (1, 2)]
    assert [row.id for row in catalogue.listed("id", 2, 2)] == [40, 41]
    assert {row.id for row in catalogue.sample(100)} <= {1, 2, 40, 41}
    assert [row.id for row in catalogue.sample(1, "sea")] == [41]
    assert catalogue.sample(5, "nothing") == []


def test_a_removed_image_is_gone_and_its_id_is_not_given_again(catalogue):
    assert catalogue.remove(41).path == b"c.png"
    assert catalogue.remove(41) is None
    assert catalogue.row(41) is None
    assert catalogue.labels() == {"Straße": 1, "sky": 2}
    assert catalogue.add([Entry("new.png")], make_codes(1)) == [42]
    catalogue.remove(1)
    catalogue.remove(2, forget=False)
    assert catalogue.forgotten() == {"a/1.png"}


def test_methods_without_uncertainty_have_none(tmp_path):
    with Catalogue(tmp_path / "c.sqlite", 12) as made:
        made.add(ENTRIES[:2], make_codes(2, uncertainty=False))
        assert made.row(1).uncertainty is made.row(1).bit_uncertainty is None
        assert [row.id for row in made.listed("uncertainty", 5)] == [1, 2]


def test_a_change_happens_whole_or_not_at_all(catalogue):
    def failing():
        yield Entry("one.png", ["new"])
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        catalogue.add(failing(), make_codes(2))
    assert len(catalogue) == 4
    assert "new" not in catalogue.labels()

    def fail_later():
        with catalogue.changing():
            catalogue.remove(1)
            catalogue.note(key="value")
            raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        fail_later()
    assert catalogue.row(1) is not None
    assert catalogue.about("key") is None


def test_changes_wait_for_the_disk(catalogue):
    connection = catalogue._connection()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_threads_read_while_another_writes(catalogue):
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(len(catalogue))

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(50):
        catalogue.add([Entry(f"{n}.png")], make_codes(1))
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(catalogue) == 54


@pytest.mark.parametrize("content", [b"no database at all", b""])
def test_a_foreign_file_is_refused(tmp_path, content):
    file = tmp_path / "catalogue.sqlite"
    file.write_bytes(content)
    if content:
        with pytest.raises(FormatError, match="cannot be used as a catalogue"):
            Catalogue(file, 12)
    else:
        Catalogue(file, 12).close()  # as a new one


def test_another_programs_database_is_refused(tmp_path):
    file = tmp_path / "catalogue.sqlite"
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE messages (text TEXT)")
    other.close()
    with pytest.raises(FormatError, match="not made by this version of dmuh"):
        Catalogue(file, 12)
