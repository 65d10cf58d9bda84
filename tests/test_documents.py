"""Documents and journals: whatever was altered, cut short or taken from elsewhere is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmuh.errors import DataError, FormatError
from dmuh.files.documents import Journal, digest_of, read_document, refuse_foreign, write_document

CONTENT = {"é": [1, 2.5, None, True, float("inf")], "nested": {"a": "b", "1": 2}, "text": 'x\n"\u2028'}


def test_a_document_comes_back_as_it_was(tmp_path):
    write_document(tmp_path / "a.json", "dmuh test", CONTENT)
    assert read_document(tmp_path / "a.json", "dmuh test") == CONTENT


def test_numbers_as_keys_come_back_as_texts(tmp_path):
    write_document(tmp_path / "a.json", "dmuh test", {"at": {2: 0.5, 10: 0.25}})
    assert read_document(tmp_path / "a.json", "dmuh test") == {"at": {"2": 0.5, "10": 0.25}}


def test_every_flipped_byte_of_a_document_is_refused_or_changes_nothing(tmp_path):
    file = tmp_path / "a.json"
    write_document(file, "dmuh test", CONTENT)
    whole = file.read_bytes()
    refused = 0
    for at in range(len(whole)):
        for flip in (0x01, 0x20, 0x80):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            try:
                assert json.dumps(read_document(file, "dmuh test")) == json.dumps(CONTENT)
            except FormatError:
                refused += 1
    assert refused > 2 * len(whole)


def test_every_cut_of_a_document_is_refused(tmp_path):
    file = tmp_path / "a.json"
    write_document(file, "dmuh test", CONTENT)
    whole = file.read_bytes()
    for length in range(len(whole) - 2):
        file.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"a\.json"):
            read_document(file, "dmuh test")


@pytest.mark.parametrize("content", [b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"kind": "dmuh test"}', b"{}"])
def test_what_is_no_document_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.json"):
        read_document(tmp_path / "a.json", "dmuh test")


def test_a_missing_document_and_one_of_another_kind_are_refused(tmp_path):
    with pytest.raises(FormatError, match="does not exist, expected dmuh test"):
        read_document(tmp_path / "a.json", "dmuh test")
    write_document(tmp_path / "a.json", "dmuh other", CONTENT)
    with pytest.raises(FormatError, match="holds dmuh other, expected dmuh test"):
        read_document(tmp_path / "a.json", "dmuh test")


def test_files_that_dmuh_did_not_write_are_not_taken_for_its_own(tmp_path):
    refuse_foreign(tmp_path, "a.json", "dmuh test", ["b.bin"])
    (tmp_path / "b.bin").touch()
    with pytest.raises(DataError, match=r"has b\.bin, but not as this dmuh writes"):
        refuse_foreign(tmp_path, "a.json", "dmuh test", ["b.bin"])
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match=r"has a\.json and b\.bin"):
        refuse_foreign(tmp_path, "a.json", "dmuh test", ["b.bin"])
    write_document(tmp_path / "a.json", "dmuh test", CONTENT)
    refuse_foreign(tmp_path, "a.json", "dmuh test", ["b.bin"])


LINES = [{"epoch": 1, "é": "x\ny"}, {"epoch": 2, "loss": 0.1}, {"epoch": 3, "at": {1: 2}}]
READ = [*LINES[:2], {"epoch": 3, "at": {"1": 2}}]


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "a.jsonl", "this run")
    for line in LINES:
        made.append(line)
    return made


def test_lines_come_back_in_order_and_a_torn_last_one_is_left_out(journal):
    assert journal.lines() == READ
    whole = journal.path.read_bytes()
    other = Journal(journal.path.with_name("b.jsonl"), "this run")
    other.write([*LINES, {"epoch": 4}])
    longer = other.path.read_bytes()
    assert longer.startswith(whole)
    for length in range(len(whole), len(longer)):
        journal.path.write_bytes(longer[:length])
        assert journal.lines() == READ
    assert other.lines() == [*READ, {"epoch": 4}]


def test_a_closed_journal_misses_no_line(journal):
    with pytest.raises(FormatError, match="lines are missing at its end"):
        journal.lines(closed=True)
    journal.close()
    assert journal.lines(closed=True) == journal.lines() == READ
    whole = journal.path.read_bytes()
    for length in range(len(whole) - 1):
        journal.path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            journal.lines(closed=True)


def test_a_journal_that_is_not_there_has_no_lines(tmp_path):
    assert Journal(tmp_path / "a.jsonl", "x").lines() == []
    with pytest.raises(FormatError, match="missing or cut short"):
        Journal(tmp_path / "a.jsonl", "x").lines(closed=True)


@pytest.mark.parametrize("change", [
    lambda lines: lines[1:],
    lambda lines: [lines[0], lines[2]],
    lambda lines: [lines[1], lines[0], lines[2]],
    lambda lines: [lines[0], lines[0], *lines[1:]],
    lambda lines: [b"[]", *lines[1:]],
    lambda lines: [b"", *lines],
    lambda lines: [lines[0].replace(b"1", b"2", 1), *lines[1:]],
], ids=["first gone", "one gone", "swapped", "twice", "a list", "an empty line", "altered"])  # fmt: skip
def test_altered_lines_are_refused(journal, change):
    *lines, _ = journal.path.read_bytes().split(b"\n")
    journal.path.write_bytes(b"\n".join([*change(lines), b""]))
    with pytest.raises(FormatError, match="was altered"):
        journal.lines()


def test_the_lines_of_another_run_are_refused(journal):
    with pytest.raises(FormatError, match="not of this run"):
        Journal(journal.path, "another run").lines()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_digest_does_not_depend_on_how_a_value_was_written(value):
    assert digest_of(json.loads(json.dumps(value))) == digest_of(value)
