"""Duplicates are moved away and back; nothing is deleted or overwritten, whenever it ends."""

import errno
import json
import os
from pathlib import Path

import pytest

from dmuh.duplicates import Move, moving
from dmuh.duplicates.moving import move, plan_moves, undo
from dmuh.errors import DataError, FormatError


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "photos"
    for n in range(5):
        file = root / ("a" if n % 2 else "b/c") / f"{n}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"content {n}")
        os.utime(file, (1e9, 1e9 + n))
    return root


def contents(root: Path) -> dict[str, tuple[str, float]]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix == ".jpg")
    return {str(path.relative_to(root)): (path.read_text(), path.stat().st_mtime) for path in files}


def paths_of(root: Path) -> list[Path]:
    return [Path(name) for name in sorted(contents(root))]


def test_moved_there_and_back(folder, tmp_path):
    before, into = contents(folder), tmp_path / "away"
    chosen = paths_of(folder)[:3]
    moves = plan_moves(folder, chosen, into)
    assert contents(folder) == before, "a plan moves nothing"
    assert not into.exists()
    assert move(moves, into).n == 3
    assert contents(into) == {str(path): before[str(path)] for path in chosen}
    assert set(contents(folder)) == set(before) - set(map(str, chosen))
    moved = undo(into)
    assert (moved.n, moved.left) == (3, ())
    assert contents(folder) == before
    assert list(into.iterdir()) == [], "the journal and empty folders go"
    with pytest.raises(DataError, match="has no journal of moved duplicates"):
        undo(into)


def test_two_moves_into_one_folder_are_both_taken_back(folder, tmp_path):
    before, into = contents(folder), tmp_path / "away"
    for part in (paths_of(folder)[:2], paths_of(folder)[2:4]):
        move(plan_moves(folder, part, into), into)
    assert sorted(file.name for file in into.glob("*.json")) == ["dmuh-moved-0001.json", "dmuh-moved-0002.json"]
    assert undo(into).n == 4
    assert contents(folder) == before


@pytest.mark.parametrize("step", range(4))
def test_whatever_a_kill_leaves_behind_can_be_taken_back(folder, tmp_path, monkeypatch, step):
    before, into = contents(folder), tmp_path / "away"
    moves = plan_moves(folder, paths_of(folder), into)
    real, calls = Path.unlink, []

    def killed(path, missing_ok=False):
        if path.suffix == ".jpg":
            calls.append(path)
            if len(calls) > step:
                raise KeyboardInterrupt
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            move(moves, into)
    assert {**contents(folder), **contents(into)} == before, "nothing is lost"
    assert undo(into).left == ()
    assert contents(folder) == before
    assert contents(into) == {}


def test_nothing_is_overwritten(folder, tmp_path):
    into = tmp_path / "away"
    first = paths_of(folder)[0]
    (into / first).parent.mkdir(parents=True)
    (into / first).write_text("mine")
    with pytest.raises(DataError, match=r"is there already, and nothing is overwritten"):
        plan_moves(folder, [first], into)
    late = move([Move(folder / first, into / first)], into)  # it came between plan and move
    assert late.n == 0
    assert "is there already" in late.left[0]
    assert (into / first).read_text() == "mine"
    assert (folder / first).exists()


def test_a_file_that_took_its_place_stays(folder, tmp_path):
    into, first = tmp_path / "away", paths_of(folder)[0]
    move(plan_moves(folder, [first], into), into)
    (folder / first).write_text("new")
    moved = undo(into)
    assert moved.n == 0
    assert "is there already" in moved.left[0]
    assert (folder / first).read_text() == "new"
    (folder / first).rename(folder / "new.jpg")
    assert undo(into).n == 1, "the journal stays until all is back"


def test_to_another_disk_files_are_copied_first(folder, tmp_path, monkeypatch):
    before, into = contents(folder), tmp_path / "away"
    real = os.link

    def other_disk(source, target, **how):
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target, **how)

    monkeypatch.setattr(moving.os, "link", other_disk)
    assert move(plan_moves(folder, paths_of(folder), into), into).left == ()
    assert contents(into) == before
    assert undo(into).n == len(before)
    assert contents(folder) == before


def test_refused_places(folder, tmp_path):
    with pytest.raises(DataError, match="must be outside"):
        plan_moves(folder, [], folder / "a" / "away")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="must be a folder"):
        plan_moves(folder, [], tmp_path / "file")


def test_an_altered_journal_is_refused(folder, tmp_path):
    into = tmp_path / "away"
    move(plan_moves(folder, paths_of(folder)[:1], into), into)
    journal = into / "dmuh-moved-0001.json"
    value = json.loads(journal.read_text())
    value["moves"][0][0] = str(tmp_path / "elsewhere.jpg")
    journal.write_text(json.dumps(value))
    with pytest.raises(FormatError, match="was altered"):
        undo(into)
    assert not (tmp_path / "elsewhere.jpg").exists()
