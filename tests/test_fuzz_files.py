"""A few rounds of the fuzzer of all files; `make fuzz` makes thousands."""

import random

import pytest

import fuzz_files
from dmuh.errors import FormatError


@pytest.mark.long
@pytest.mark.parametrize("kind", fuzz_files.KINDS, ids=lambda kind: kind.__name__.removeprefix("cases_of_"))
def test_damage_is_refused_or_changes_nothing(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path / "cache"))
    for case in kind(tmp_path):
        seen, findings = fuzz_files.fuzz(case, 12, random.Random(case.name))
        assert not findings, (case.name, findings)
        assert seen.total() == 12


@pytest.mark.parametrize("answer", ["another", "traceback"])
def test_the_fuzzer_finds_what_is_not_checked(tmp_path, answer):
    """A file that is read as it is: the fuzzer must tell."""
    file, twin = tmp_path / "one", tmp_path / "two"
    file.write_bytes(b"0123456789")
    twin.write_bytes(b"other")

    def ask() -> str:
        content = file.read_bytes()
        if content == b"other":
            raise FormatError("it is the twin")
        return content.decode("latin-1") if answer == "another" else str(int(content))

    seen, findings = fuzz_files.fuzz(fuzz_files.Case("plain", file, twin, ask), 100, random.Random(0))
    assert seen["refused"] > 0
    assert {finding.what.split(":")[0] for finding in findings} >= {
        "another answer" if answer == "another" else "ValueError"
    }
    assert file.read_bytes() == b"0123456789"
