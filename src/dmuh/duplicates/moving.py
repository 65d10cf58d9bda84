"""Moving duplicates into another folder, and back.

Nothing is deleted and nothing is overwritten. What is to be moved is written down first, in a journal in that folder,
so that whatever a kill leaves behind can be taken back. A file gets its new name before it loses the old one.
"""

import errno
import filecmp
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dmuh.errors import DataError
from dmuh.files import written_whole
from dmuh.files.documents import read_document, write_document

_KIND = "dmuh moved duplicates"
_NAME = re.compile(r"dmuh-moved-(\d{4,})\.json")


@dataclass(frozen=True)
class Move:
    """A file and where it goes."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Moved:
    """How many files were moved, and those that were not, each with the reason."""

    n: int
    left: tuple[str, ...]


def plan_moves(root: Path, paths: Sequence[Path], into: Path) -> list[Move]:
    """Return the moves of files below a folder into another one, with the same paths below that.

    Raises where the other folder is inside the first, or has a file of one of these names.
    """
    if Path(os.path.realpath(into)).is_relative_to(os.path.realpath(root)):
        raise DataError(f"--move-to must be outside {root}, got {into}: what is moved there would be found again")
    if into.exists() and not into.is_dir():
        raise DataError(f"--move-to must be a folder, and {into} is a file")
    moves = [Move(root / path, into / path) for path in paths]
    taken = [move.target for move in moves if os.path.lexists(move.target)]
    if taken:
        raise DataError(f"{taken[0]} is there already, and nothing is overwritten: choose another --move-to")
    return moves


def move(moves: Sequence[Move], into: Path) -> Moved:
    """Move the files, after a journal of them was written into the folder they go to."""
    if not moves:
        return Moved(0, ())
    content = {"moves": [[os.path.abspath(each.source), os.path.abspath(each.target)] for each in moves]}  # noqa: PTH100
    _write_journal(into, content)
    return _move_each(moves)


def undo(folder: Path) -> Moved:
    """Move back what was moved into a folder, whether or not it came to its end; journals of which all is back go."""
    journals = _journals(folder)
    if not journals:
        raise DataError(f"{folder} has no journal of moved duplicates: name the folder that was given as --move-to")
    n = 0
    left: list[str] = []
    for _, journal in reversed(journals):
        moves = [Move(Path(target), Path(source)) for source, target in read_document(journal, _KIND)["moves"]]
        there = [each for each in moves if os.path.lexists(each.source)]
        done = _move_each(there)
        n += done.n
        left += done.left
        if not done.left:
            _tidy(folder, there)
            journal.unlink()
    return Moved(n, tuple(left))


def _move_each(moves: Sequence[Move]) -> Moved:
    n, left = 0, []
    for each in moves:
        try:
            _move_file(each.source, each.target)
            n += 1
        except FileExistsError:
            left.append(f"{each.source}: {each.target} is there already")
        except OSError as error:
            left.append(f"{each.source}: {error.strerror}")
    return Moved(n, tuple(left))


def _move_file(source: Path, target: Path) -> None:
    """Move one file; a file that is at the target by then stays, unless it is the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        if not filecmp.cmp(source, target, shallow=False):  # else a kill left the file in both places
            raise
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with written_whole(target, replace=False) as temporary:  # another disk
            shutil.copyfile(source, temporary)
        shutil.copystat(source, target)
    source.unlink()


def _write_journal(into: Path, content: dict[str, list[list[str]]]) -> None:
    number = max((number for number, _ in _journals(into)), default=0) + 1
    while True:
        with suppress(FileExistsError):
            write_document(into / f"dmuh-moved-{number:04}.json", _KIND, content, replace=False)
            return
        number += 1


def _journals(folder: Path) -> list[tuple[int, Path]]:
    named = ((_NAME.fullmatch(file.name), file) for file in folder.glob("dmuh-moved-*.json"))
    return sorted((int(match[1]), file) for match, file in named if match)


def _tidy(folder: Path, moves: Sequence[Move]) -> None:
    """Remove the folders that are empty now that the files are back."""
    inner = {parent for each in moves for parent in each.source.parents if parent.is_relative_to(folder.absolute())}
    for parent in sorted(inner - {folder.absolute()}, key=lambda path: -len(path.parts)):
        with suppress(OSError):  # something else is in it
            parent.rmdir()
