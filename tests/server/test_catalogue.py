"""The catalogue: what goes in comes out, in the order that was asked for, also after a crash in the middle."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from dmuh.catalogue import Catalogue, Decision, Entry, replace_codes
from dmuh.catalogue.database import _WAIT
from dmuh.catalogue.reading import _ADDED
from dmuh.codes import Codes
from dmuh.errors import CatalogueError, DataError, FormatError, InputError, RequestError
from dmuh.server.limits import Limits


def make_codes(n, n_bits=12, seed=0, sure=1):
    """Codes as a network gives them, with `sure` bits of sureness per bit; None: nothing is known of it."""
    rng = np.random.default_rng(seed)
    outputs = rng.standard_normal((n, n_bits), np.float32)
    if sure is None:
        return Codes.from_outputs(outputs)
    codes = Codes.from_outputs(outputs, (0.5 - 0.5 * np.tanh(abs(outputs))).astype(np.float32)).with_contents(outputs)
    if not sure:
        return codes
    steps = np.linspace(0.4, 0.1, 2**sure - 1, dtype=np.float32)
    worth = np.linspace(0.125, 0.875, 2**sure, dtype=np.float32)
    return codes.graded(np.tile(steps, (n_bits, 1)), np.tile(worth, (n_bits, 1)))


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
    assert row.levels == codes.levels[1].tobytes()
    assert row.contents == codes.contents[1]
    assert row.uncertainty == pytest.approx(codes.image_uncertainty[1])
    assert json.loads(catalogue.row(1).metadata) == {"year": "1"}
    assert catalogue.row(3) is None


@pytest.mark.parametrize("n_bits", [1, 12, 63, 64, 65, 128])
@pytest.mark.parametrize("sure", [None, 0, 1, 2])
def test_codes_come_back_with_their_levels(tmp_path, n_bits, sure):
    codes = make_codes(9, n_bits, sure=sure)
    with Catalogue(tmp_path / "c.sqlite", n_bits) as made:
        assert (made.sure, made.worth) == (None, None)
        made.add([Entry(f"{n}.png", ["odd"] if n % 2 else []) for n in range(9)], codes)
    with Catalogue(tmp_path / "c.sqlite", n_bits) as made:
        stored = Codes(codes.bits, n_bits, ids=range(1, 10), levels=codes.levels, worth=codes.worth)
        assert made.codes() == stored
        assert made.codes("odd") == stored[1::2]
        assert made.codes("nothing") == stored[:0]
        assert made.sure == (sure or 0)
        known = [row.uncertainty for row in made.listed("id", 9)]
        assert known == ([None] * 9 if sure is None else codes.image_uncertainty.tolist())


def test_codes_of_other_levels_are_refused(catalogue):
    for sure in (None, 0, 2):
        said = f"codes with 1 sure bits per bit, got codes with {sure or 0}: give --sure 1, or another --state"
        with pytest.raises(DataError, match=said):
            catalogue.add([Entry("new.png")], make_codes(1, sure=sure))
    other = make_codes(1)
    other = Codes(other.bits, 12, levels=other.levels, worth=other.worth / 2)
    with pytest.raises(DataError, match="holds codes whose sure bits mean something else: give another --state"):
        catalogue.add([Entry("new.png")], other)
    assert len(catalogue) == 4
    assert catalogue.add([Entry("new.png")], make_codes(1)) == [42]


def test_identical_images_are_found_by_what_the_network_gave(catalogue):
    codes = make_codes(4)
    assert catalogue.add([Entry("copy.png", ["sea"]), Entry("other.png")], codes[[1, 3]]) == [42, 43]
    assert sorted(catalogue.identical(int(codes.contents[1]))) == [2, 42]
    assert catalogue.identical(int(codes.contents[1]), "sea") == [42]
    assert catalogue.identical(int(codes.contents[1]), "nothing") == []
    assert catalogue.identical(17) == []
    catalogue.remove(2)
    assert catalogue.identical(int(codes.contents[1])) == [42]
    plan = catalogue._read("EXPLAIN QUERY PLAN SELECT id FROM codes WHERE contents = ?", (17,))
    assert "COVERING INDEX by_contents" in plan[0][3]  # without a look at every row


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
        made.add(ENTRIES[:2], make_codes(2, sure=None))
        row = made.row(1)
        assert row.uncertainty is row.levels is row.contents is None
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
        with catalogue.transaction():
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


def test_decisions_on_labels_come_back(catalogue):
    assert catalogue.decisions() == {}
    assert catalogue.decide(2, Decision("accept", ("sea",)))
    assert catalogue.decide(1, Decision("skip", ("not used",)))
    assert catalogue.decide(41, Decision("own", ()))
    assert not catalogue.decide(3, Decision("skip"))  # there is no such image
    decided = {1: Decision("skip", ("sky",)), 2: Decision("accept", ("sea",)), 41: Decision("own")}
    assert catalogue.decisions() == decided
    catalogue.decide(2, Decision("own", ("moon", "sea")))  # said anew
    catalogue.decide(41, None)  # taken back
    with Catalogue(catalogue.file, 12) as again:
        assert again.decisions() == {1: Decision("skip", ("sky",)), 2: Decision("own", ("moon", "sea"))}
    with pytest.raises(InputError, match="a decision is one of accept, skip, own, got 'maybe'"):
        Decision("maybe")


def test_a_decision_holds_for_the_file_as_long_as_its_labels_are_what_they_were(catalogue):
    catalogue.decide(1, Decision("accept", ("sea",)))
    catalogue.remove(1)
    assert catalogue.decisions() == {}
    (again, other) = catalogue.add([ENTRIES[0], Entry("a/1.png", ["sky"], added=True)], make_codes(2))
    assert catalogue.decisions() == {again: Decision("accept", ("sea",))}
    catalogue.remove(again)
    catalogue.add([Entry("a/1.png", ["sea"])], make_codes(1))
    assert catalogue.decisions() == {}
    assert other != again


def test_a_decision_that_was_altered_is_noticed(catalogue):
    catalogue.decide(1, Decision("accept", ("sea",)))
    with sqlite3.connect(catalogue.file) as other:
        other.execute("UPDATE decisions SET kind = 'skip'")
    other.close()
    with pytest.raises(CatalogueError, match="a checksum does not fit"):
        catalogue.decisions()


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


# -- damage ----------------------------------------------------------------------------------------------------------


def answers(catalogue):
    """All that can be asked of a catalogue."""
    labels = catalogue.labels()
    return {
        "n": len(catalogue),
        "labels": labels,
        "listed": [catalogue.listed(order, 1000) for order in ("id", "uncertainty")],
        "labelled": [catalogue.listed("uncertainty", 1000, 0, label) for label in labels],
        "codes": [catalogue.codes(label).bits.tobytes() for label in [None, *labels]],
        "levels": [catalogue.codes(label).level().tolist() for label in [None, *labels]],
        "identical": [catalogue.identical(row.contents or 0) for row in catalogue.listed("id", 1000)],
        "ids": [catalogue.codes(label).ids.tolist() for label in [None, *labels]],
        "files": catalogue.files(),
        "found": [catalogue.id_of(path, added=False) for path in catalogue.files()],
        "added": catalogue.added_files(),
        "forgotten": catalogue.forgotten(),
        "decisions": catalogue.decisions(),
        "about": [catalogue.about(key) for key in ("model", "source", "milvus", "worth")],
        "next": catalogue.add([Entry("next.png")], make_codes(1, sure=catalogue.sure)),
    }


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A catalogue of some pages, closed properly."""
    file = tmp_path_factory.mktemp("closed") / "catalogue.sqlite"
    with Catalogue(file, 12) as made:
        made.note(model="d1e5", source="folder")
        entries = [
            Entry(f"{n}.png", [f"label {n % 7}", "all"], {"n": str(n)}, added=n % 3 == 0, stamp=n) for n in range(120)
        ]
        made.add(entries, make_codes(120))
        for id_ in (5, 6, 119, 120):
            made.remove(id_)
        for id_ in range(20, 60):
            made.decide(id_, Decision("own", (f"mine {id_}",)))
    return file


@pytest.fixture
def damaged(closed, tmp_path):
    """Makes a copy of the catalogue with other bytes, and asks it all."""
    file = tmp_path / "catalogue.sqlite"
    with Catalogue(shutil.copy(closed, file), 12) as made:
        before = answers(made)

    def ask(content: bytes) -> bool:
        """Whether it is refused by a sentence; else its answers are those of before."""
        for name in tmp_path.iterdir():
            name.unlink()
        shutil.copy(closed.with_name("catalogue.sqlite.sha256"), tmp_path)
        file.write_bytes(content)
        try:
            with Catalogue(file, 12) as made:
                assert answers(made) == before
        except FormatError:
            return True
        return False

    ask.content = closed.read_bytes()
    return ask


@pytest.mark.long
def test_bytes_that_were_altered_are_noticed_or_change_nothing(damaged):
    rng = np.random.default_rng(0)
    refused = 0
    places = [*range(100), *rng.integers(0, len(damaged.content), 400).tolist()]  # those of the head, and any others
    for place in places:
        content = bytearray(damaged.content)
        content[place] ^= 1 << rng.integers(8)
        refused += damaged(bytes(content))
    assert refused > 150  # the others are of free space
    assert not damaged(damaged.content)


@pytest.mark.long
def test_bytes_that_changed_places_are_noticed_or_change_nothing(damaged):
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(200):
        content = bytearray(damaged.content)
        one, other = rng.integers(0, len(content), 2)
        content[one], content[other] = content[other], content[one]
        refused += damaged(bytes(content))
    pages = [damaged.content[at : at + 4096] for at in range(0, len(damaged.content), 4096)]
    for n in range(1, len(pages)):
        refused += damaged(b"".join([*pages[: n - 1], pages[n], pages[n - 1], *pages[n + 1 :]]))
    assert refused > 100


@pytest.mark.parametrize("part", [0, 1, 50, 100, 512, 4095, 4096, 4097, 8192, 20_000, -4096, -1])
def test_a_catalogue_that_was_cut_is_refused(damaged, part):
    assert damaged(damaged.content[:part])


def test_what_was_closed_is_sealed_and_a_crash_leaves_it_to_be_looked_through(closed, tmp_path):
    seal, copy = closed.with_name("catalogue.sqlite.sha256"), tmp_path / "catalogue.sqlite"
    checked = subprocess.run(["sha256sum", "-c", seal.name], cwd=closed.parent, capture_output=True, check=False)
    assert checked.returncode == 0
    content = closed.read_bytes()
    place = content.index(b'{"n": "77"}')
    copy.write_bytes(content[: place + 7] + b"8" + content[place + 8 :])  # a digit of what is known of an image
    with pytest.raises(FormatError, match="catalogue: what stands in it was altered after it was written"):
        Catalogue(copy, 12)
    line = f"{hashlib.sha256(copy.read_bytes()).hexdigest()}  catalogue.sqlite\n"
    copy.with_name("catalogue.sqlite.sha256").write_text(line)
    with Catalogue(copy, 12) as made, pytest.raises(CatalogueError, match="a checksum does not fit") as caught:
        made.listed("id", 1000)  # found late, where the seal was made of what is damaged
    assert (caught.value.status, str(copy) in str(caught.value)) == (500, False)


def test_damage_that_was_noticed_is_not_sealed(closed, tmp_path):
    file = Path(shutil.copy(closed, tmp_path))
    with Catalogue(file, 12) as made:
        with sqlite3.connect(file) as other:
            other.execute("UPDATE images SET metadata = '{}' WHERE id = 7")
        other.close()
        with pytest.raises(CatalogueError):
            made.row(7)
        made.add([Entry("new.png")], make_codes(1))
    with pytest.raises(FormatError, match="altered"):
        Catalogue(file, 12)


@pytest.mark.parametrize("trace", ["catalogue.sqlite.sha256", "catalogue.sqlite-wal"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_catalogue_that_went_missing_is_not_begun_anew(tmp_path, trace, empty):
    file = tmp_path / "catalogue.sqlite"
    (tmp_path / trace).write_text("something")
    if empty:
        file.touch()
    with pytest.raises(FormatError, match=f"is missing or empty, but {trace} is left of it: put it back"):
        Catalogue(file, 12)
    assert (tmp_path / trace).read_text() == "something"
    assert file.exists() == empty


def test_a_catalogue_with_tables_of_others_is_refused(closed, tmp_path):
    file = Path(shutil.copy(closed, tmp_path))
    with sqlite3.connect(file) as other:
        other.execute("CREATE TRIGGER more AFTER DELETE ON images BEGIN DELETE FROM codes; END")
    other.close()
    with pytest.raises(FormatError, match="its tables are not those of a catalogue"):
        Catalogue(file, 12)


VERSIONS = {
    1: """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- of the image
  bit_uncertainty BLOB     -- float32, one a bit
);
CREATE INDEX by_path ON images (path, added);
CREATE INDEX by_uncertainty ON images (uncertainty DESC, id);
CREATE TABLE codes (id INTEGER PRIMARY KEY, code BLOB NOT NULL);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY) WITHOUT ROWID;
PRAGMA application_id = 0x646D7568;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
""",
    2: """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE images (
  id INTEGER PRIMARY KEY,
  path BLOB NOT NULL,      -- below the collection's folder, or the name of an added file
  added INTEGER NOT NULL,  -- whether it came through the service
  stamp INTEGER,           -- when the file was changed, for folders that are looked through again
  labels TEXT NOT NULL,    -- JSON
  metadata TEXT NOT NULL,  -- JSON
  uncertainty REAL,        -- of the image
  bit_uncertainty BLOB,    -- float32, one per bit
  checksum INTEGER NOT NULL
);
CREATE INDEX by_path ON images (path, added);
CREATE INDEX by_uncertainty ON images (uncertainty DESC, id);
CREATE TABLE codes (id INTEGER PRIMARY KEY, code BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE labels (label TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE forgotten (path BLOB PRIMARY KEY, checksum INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA application_id = 0x646D7568;
PRAGMA user_version = 2;
PRAGMA journal_mode = WAL;
""",
}


def checksum_2(table, row):
    """The checksum of a row of version 2, as dmuh computed it then."""
    if table == "images":
        numbers = f"{row[0]} {row[2]:d} {row[3]} {row[6]!r} {row[7] is None}"
        return crc32(row[7] or b"", crc32(row[1], crc32(f"{numbers}\0{row[4]}\0{row[5]}\0".encode())))
    if table == "codes":
        return crc32(row[1], (row[0] ^ row[0] >> 32) & 0xFFFFFFFF)
    return crc32(f"{row[0]}\0{row[1]}".encode() if table == "about" else row[0])


def as_version(version, closed, file):
    """Write a catalogue as an earlier dmuh did, with uncertainties that were no probabilities."""
    old, now = sqlite3.connect(file), sqlite3.connect(closed)
    old.executescript(VERSIONS[version])
    rng = np.random.default_rng(0)
    for table, columns in (("about", "key, value"), ("codes", "id, code"), ("forgotten", "path"),
                           ("images", "id, path, added, stamp, labels, metadata")):  # fmt: skip
        for row in now.execute(f"SELECT {columns} FROM {table}"):
            if table == "about" and (row[0] == "worth" or (row[0], version) == ("last", 1)):
                continue
            unsure = (3 * rng.random(12)).astype(np.float32)
            whole = (*row, float(unsure.mean()), unsure.tobytes()) if table == "images" else row
            whole = (*whole, checksum_2(table, whole)) if version == 2 else whole
            old.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(whole))})", whole)
    old.executemany("INSERT INTO labels VALUES (?, ?)", now.execute("SELECT label, id FROM labels"))
    if version == 1:
        old.execute("UPDATE sqlite_sequence SET seq = 120")
    old.commit()
    old.close()
    now.close()


def without_levels(closed, file):
    """What a catalogue answers whose codes have no levels, and of whose images it is not known how sure they are."""
    with Catalogue(closed, 12) as now, Catalogue(file, 12) as plain:
        rows = now.listed("id", 1000)
        entries = [
            Entry(os.fsdecode(row.path), json.loads(row.labels), json.loads(row.metadata), row.id, bool(row.added),
                  row.stamp)
            for row in rows
        ]  # fmt: skip
        plain.add(entries, now.codes().plain())
        plain.add([Entry("last.png", id=120)], make_codes(1, sure=None))
        plain.remove(120, forget=False)
        plain.note(model="d1e5", source="folder")
        assert not plain.decisions()
        with plain.transaction() as connection:
            for path in now.forgotten():
                value = os.fsencode(path)
                connection.execute("INSERT INTO forgotten VALUES (?, ?)", (value, crc32(value)))
        return answers(plain)


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_is_converted_in_place(closed, tmp_path, caplog, version):
    file = tmp_path / "catalogue.sqlite"
    as_version(version, closed, file)
    expected = without_levels(closed, tmp_path / "plain.sqlite")
    assert expected["next"] == [121]  # though the last image, 120, is gone
    with caplog.at_level("INFO"), Catalogue(file, 12) as made:
        assert "the catalogue is of an older dmuh: it is converted, once, without its uncertainties" in caplog.text
        assert (made.sure, made.row(7).uncertainty) == (0, None)
        assert answers(made) == expected
    caplog.clear()
    with caplog.at_level("INFO"), Catalogue(file, 12) as made:
        assert len(made) == expected["n"] + 1
        with pytest.raises(DataError, match="codes with 0 sure bits per bit, got codes with 1: give --sure 0"):
            made.add([Entry("new.png")], make_codes(1))
    assert caplog.text == ""


@pytest.mark.parametrize("version", [1, 2])
def test_the_copy_in_milvus_of_an_older_version_is_made_anew(tmp_path, caplog, version):
    with Catalogue(tmp_path / "now.sqlite", 12) as now:
        now.note(milvus="dmuh_0123", model="d1e5")
    file = tmp_path / "catalogue.sqlite"
    as_version(version, tmp_path / "now.sqlite", file)
    with Catalogue(file, 12) as made:
        assert (made.about("milvus"), made.about("model")) == (None, "d1e5")
    assert "its copy in Milvus is made anew: the collection dmuh_0123 there is not used any more" in caplog.text


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_without_images_takes_any_codes(tmp_path, version):
    with Catalogue(tmp_path / "empty.sqlite", 12) as empty:
        empty.note(model="d1e5")
    file = tmp_path / "catalogue.sqlite"
    as_version(version, tmp_path / "empty.sqlite", file)
    with Catalogue(file, 12) as made:
        assert made.sure is None
        made.add([Entry("new.png")], make_codes(1, sure=2))
        assert made.sure == 2


def test_version_1_that_is_damaged_is_left_as_it_is(closed, tmp_path):
    file = tmp_path / "catalogue.sqlite"
    as_version(1, closed, file)
    with sqlite3.connect(file) as other:
        other.execute("UPDATE images SET labels = 'no JSON' WHERE id = 7")
    other.close()
    before = file.read_bytes()
    with pytest.raises(FormatError, match=r"cannot be used as a catalogue: .*malformed JSON"):
        Catalogue(file, 12)
    assert file.read_bytes() == before


@pytest.mark.parametrize("damage", [
    "UPDATE images SET metadata = '{}' WHERE id = 7",
    "UPDATE images SET path = 'text' WHERE id = 7",
    "UPDATE codes SET code = x'0000' WHERE id = 8",
    "UPDATE about SET value = 'other' WHERE key = 'model'",
    "UPDATE forgotten SET checksum = checksum + 1",
    "DELETE FROM codes WHERE id = 9",
    "DELETE FROM labels WHERE id = 10",
])  # fmt: skip
def test_version_2_that_is_damaged_is_left_as_it_is(closed, tmp_path, damage):
    file = tmp_path / "catalogue.sqlite"
    as_version(2, closed, file)
    with sqlite3.connect(file) as other:
        other.execute(damage)
    other.close()
    before = file.read_bytes()
    with pytest.raises(FormatError, match="altered after it was written: a checksum does not fit"):
        Catalogue(file, 12)
    assert file.read_bytes() == before


@pytest.fixture
def version_3(closed, tmp_path):
    """The catalogue as version 3 had it: without decisions."""
    file = Path(shutil.copy(closed, tmp_path))
    with sqlite3.connect(file) as other:
        for thing in ("TABLE decisions", "TABLE changes", "INDEX by_added"):
            other.execute(f"DROP {thing}")
        other.execute("PRAGMA user_version = 3")
    other.close()
    return file


def test_version_3_gets_a_table_of_decisions_and_keeps_all_else(closed, version_3, tmp_path):
    with Catalogue(shutil.copy(closed, tmp_path / "now.sqlite"), 12) as now, Catalogue(version_3, 12) as made:
        assert made.decisions() == {}
        for id_, decision in now.decisions().items():
            made.decide(id_, decision)
        assert answers(made) == answers(now)
    Catalogue(version_3, 12).close()


def test_version_3_that_is_damaged_is_left_as_it_is(version_3):
    with sqlite3.connect(version_3) as other:
        other.execute("UPDATE images SET metadata = '{}' WHERE id = 7")
    other.close()
    before = version_3.read_bytes()
    with pytest.raises(FormatError, match="altered after it was written: a checksum does not fit"):
        Catalogue(version_3, 12)
    assert version_3.read_bytes() == before


KILLED = """
import os, sys
from pathlib import Path
from dmuh.catalogue import Catalogue, versions

calls, compute = [], versions.code_checksum

def killed_at(*row):
    calls.append(row)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return compute(*row)

killed_at.__name__ = compute.__name__
versions.code_checksum = killed_at
Catalogue(Path(sys.argv[1]), 12).close()
"""


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("row", [1, 60, 116])
def test_a_conversion_that_is_killed_begins_again(closed, tmp_path, version, row):
    file = tmp_path / "catalogue.sqlite"
    as_version(version, closed, file)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file), str(row)], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    expected = without_levels(closed, tmp_path / "plain.sqlite")
    with Catalogue(file, 12) as made:
        assert answers(made) == expected


# -- writes that cannot be -------------------------------------------------------------------------------------------


def test_another_program_that_changes_the_catalogue_is_waited_for_only_so_long(catalogue, monkeypatch):
    monkeypatch.setattr("dmuh.catalogue.database._WAIT", 0.05)
    other = sqlite3.connect(catalogue.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    seen = []

    def write():  # in a thread with a connection of its own
        with pytest.raises(RequestError, match="another program is changing the catalogue: try again") as caught:
            catalogue.add([Entry("new.png")], make_codes(1))
        seen.append(caught.value.status)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    assert seen == [503]
    with pytest.raises(FormatError, match="cannot be used as a catalogue: another program is changing"):
        Catalogue(catalogue.file, 12)
    other.execute("COMMIT")
    other.close()
    assert catalogue.add([Entry("new.png")], make_codes(1)) == [42]


def test_a_wait_is_shorter_than_a_request():
    assert Limits().seconds > _WAIT


def test_a_full_disk_is_said_and_nothing_is_stored(catalogue):
    connection = catalogue._connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RequestError, match="there is no room left for the catalogue") as caught:
        catalogue.add([Entry(f"{n}.png", ["new"]) for n in range(500)], make_codes(500))
    assert caught.value.status == 507
    assert (len(catalogue), "new" in catalogue.labels()) == (4, False)
    connection.execute("PRAGMA max_page_count = 100000")
    assert catalogue.add([Entry("new.png")], make_codes(1)) == [42]


# -- large catalogues, and those that are only read -------------------------------------------------------------------


def test_what_opening_asks_for_does_not_look_at_every_row(catalogue):
    def plan(query):
        return catalogue._read(f"EXPLAIN QUERY PLAN {query}")[0][3]

    assert "by_added" in plan(_ADDED)
    assert "by_contents" in plan("SELECT id FROM codes WHERE contents = 5")


def test_a_large_catalogue_is_not_looked_through(closed, tmp_path, monkeypatch):
    """It opens at once, also after a crash; each row is checked when it is read."""
    file = Path(shutil.copy(closed, tmp_path))
    with sqlite3.connect(file) as other:
        other.execute("UPDATE images SET metadata = '{}' WHERE id = 7")
    other.close()
    with pytest.raises(FormatError, match="altered"):
        Catalogue(file, 12)
    monkeypatch.setattr("dmuh.catalogue.integrity._SEALED", 0)
    with Catalogue(file, 12) as made:
        assert made.row(8).id == 8
        with pytest.raises(CatalogueError, match="a checksum does not fit"):
            made.row(7)
        made.add([Entry("new.png")], make_codes(1))
    assert not file.with_name("catalogue.sqlite.sha256").exists()


def test_a_reader_sees_what_a_writer_does_and_writes_nothing(catalogue):
    with Catalogue(catalogue.file, read_only=True) as reader:
        assert reader.n_bits == 12
        assert len(reader) == 4
        catalogue.remove(1)
        assert len(reader) == 3
        with reader.snapshot():
            seen = reader.ids().tolist()
            catalogue.remove(2)
            assert reader.ids().tolist() == seen
        assert reader.ids().tolist() == [40, 41]


def test_a_catalogue_that_was_not_closed_cannot_be_read_where_nothing_can_be_written(catalogue, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(catalogue.file.parent, copy)  # with its log
    monkeypatch.setattr("dmuh.catalogue.database._is_writable", lambda _: False)
    with pytest.raises(FormatError, match="was not closed, and its folder cannot be written to: open it once where"):
        Catalogue(copy / catalogue.file.name, read_only=True)
    monkeypatch.undo()
    Catalogue(copy / catalogue.file.name).close()
    monkeypatch.setattr("dmuh.catalogue.database._is_writable", lambda _: False)
    before = sorted(file.name for file in copy.iterdir())
    with Catalogue(copy / catalogue.file.name, read_only=True) as reader:
        assert reader.ids().tolist() == [1, 2, 40, 41]
    assert sorted(file.name for file in copy.iterdir()) == before


def test_changes_are_counted(catalogue):
    begun = catalogue.state
    assert catalogue.changed_since(begun) == []
    catalogue.remove(2)
    row = catalogue.remove(40)
    middle = catalogue.state
    catalogue.restore(row)
    catalogue.note(other="thing")
    catalogue.describe(1, ["other"], {"a": "b"})
    assert catalogue.changed_since(begun) == [2, 40]
    assert catalogue.changed_since(middle) == [40]
    assert catalogue.changed_since("another 3") is None
    assert catalogue.changed_since(begun.split()[0] + " 99") is None
    catalogue.forget_changes(middle)
    assert catalogue.changed_since(begun) is None
    assert catalogue.changed_since(middle) == [40]
    replace_codes(catalogue, make_codes(4, seed=5).with_ids([1, 40, 41, 99]), "another")
    assert catalogue.changed_since(catalogue.state) == []
    assert catalogue.changed_since(middle) is None


def test_labels_and_metadata_are_replaced(catalogue):
    catalogue.describe(2, ["sea", "sea"], {"year": "2"})
    row = catalogue.row(2)
    assert (json.loads(row.labels), json.loads(row.metadata)) == (["sea", "sea"], {"year": "2"})
    assert catalogue.labels() == {"sea": 2, "sky": 1}
    catalogue.describe(77, ["sea"], {})
    with Catalogue(catalogue.file, 12) as again:  # every row is checked
        assert again.labels() == {"sea": 2, "sky": 1}
