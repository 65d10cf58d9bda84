"""dmuh duplicates."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.cli.options import Json, OptionGroup, flag, with_groups
from dmuh.cli.stopping import AGAIN, stoppable
from dmuh.errors import ConfigError

if TYPE_CHECKING:
    from dmuh.duplicates import Group, Match, Moved
    from dmuh.features import FolderFeatures

_SHOWN = 10  # groups, and files to be moved, that are printed


def _how_to_go_on(**options: Any) -> str:
    into = options["move_to"]
    if into is None or not options["yes"]:
        return f"features that were computed are kept: {AGAIN}"
    return f"what was moved can be taken back by: dmuh duplicates --undo {shlex.quote(str(into))}"


@dataclass(frozen=True)
class ResultOptions(OptionGroup):
    """What is done with duplicates that were found."""

    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as a table.")] = None
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result as a page of small pictures, one HTML file.")
    ] = None
    move_to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Say what would be moved there: all but the best of each group."),
    ] = None
    yes: Annotated[bool, flag("--yes", help="With --move-to: move it.")] = False

    def check(self) -> None:
        """Raise if these options do not go together."""
        if self.yes and self.move_to is None:
            raise ConfigError("--yes goes with --move-to DIR")
        check_file(self.page, self.csv)


@stoppable(_how_to_go_on)
@with_groups
def duplicates(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Folder of images, looked through with all below it.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead: which images of FOLDER are in this other folder too."),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="X", help="How alike near duplicates are at least, 0 to 1; 0.57 if not given."),
    ] = None,
    wanted: ResultOptions = ResultOptions(),  # noqa: B008 (never used: each option has its default)
    undo: Annotated[Path | None, typer.Option(metavar="DIR", help="Move back what was moved into this folder.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where what is computed is kept; FOLDER/.dmuh if not given, as `dmuh open`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find exact and near duplicates in a folder, and name the best image of each group.

    Example: dmuh duplicates photos --page duplicates.html

    Near duplicates are other sizes, compressions, crops, colours, mirrored and turned ones. Nothing is ever deleted:
    --move-to DIR --yes moves the others away, and --undo DIR moves them back.
    """
    if undo is not None:
        others = [folder, against, at_least, state, wanted.csv, wanted.page, wanted.move_to]
        if any(value is not None for value in others) or wanted.yes:
            raise ConfigError("--undo takes the folder that things were moved into, and no other option but --json")
        _undo(undo, as_json)
        return
    if folder is None:
        raise ConfigError("give a folder of images: dmuh duplicates FOLDER")
    wanted.check()
    found = _features(folder, state)
    limit = {} if at_least is None else {"at_least": at_least}
    if against is None:
        _groups(found, limit, wanted, as_json)
        return
    if folder.resolve() == against.resolve():
        raise ConfigError(f"--against must be another folder than {folder}")
    _matches(found, _features(against, state and state / "against"), limit, wanted, as_json)


def check_file(*files: Path | None) -> None:
    """Raise if a file that is to be written is a folder."""
    for file in files:
        if file is not None and file.is_dir():
            raise ConfigError(f"{file} is a folder: name a file")


def _features(folder: Path, state: Path | None) -> "FolderFeatures":
    from dmuh.features import folder_features
    from dmuh.images import Reading

    reading = Reading(on_bad_image="skip", progress=console.counting_bar)
    found = folder_features(folder, keep_in=state, reading=reading)
    if len(reading.bad):
        warn(reading.bad.summary())
    return found


def _groups(found: "FolderFeatures", limit: dict[str, float], wanted: ResultOptions, as_json: bool) -> None:
    from dmuh.duplicates import find_groups, in_bytes
    from dmuh.report import duplicates as report

    groups = find_groups(found, count=console.counting_bar, **limit)
    if wanted.csv is not None:
        report.write_csv(wanted.csv, groups)
    if wanted.page is not None:
        report.write_page(wanted.page, found.root, len(found), groups)
    result = report.as_json(found.root, len(found), groups)
    others = [each.path for group in groups for each in group.others]
    if not as_json:
        _say_groups(groups)
        say(
            f"{len(found):,} images, {len(groups):,} groups, {result['duplicates']:,} duplicates that take "
            f"{in_bytes(result['bytes'])}"
        )
    moved = _move(found.root, others, wanted, as_json)
    _finish(result, moved, wanted, as_json)


def _matches(
    found: "FolderFeatures", others: "FolderFeatures", limit: dict[str, float], wanted: ResultOptions, as_json: bool
) -> None:
    from dmuh.duplicates import find_matches
    from dmuh.report import duplicates as report

    matches = find_matches(found, others, count=console.counting_bar, **limit)
    if wanted.csv is not None:
        report.write_matches_csv(wanted.csv, matches)
    if wanted.page is not None:
        report.write_matches_page(wanted.page, found.root, others.root, len(found), matches)
    result = {"folder": str(found.root), "against": str(others.root), "images": len(found),
              "matches": [report.match_values(match) for match in matches]}  # fmt: skip
    if not as_json:
        _say_matches(matches)
        say(f"{len(matches):,} of {len(found):,} images of {found.root} are in {others.root} too")
    moved = _move(found.root, [match.path for match in matches], wanted, as_json)
    _finish(result, moved, wanted, as_json)


def _finish(result: dict[str, Any], moved: "Moved | None", wanted: ResultOptions, as_json: bool) -> None:
    if moved is not None:
        result |= {"moved": moved.n, "not_moved": list(moved.left)}
    if as_json:
        say_json(result)
        return
    for file in (wanted.csv, wanted.page):
        if file is not None:
            say(f"written: {file}")


def _say_groups(groups: Sequence["Group"]) -> None:
    for group in groups[:_SHOWN]:
        say(f"{group.best.path}  ({group.reason})")
        for each in group.others[:_SHOWN]:
            say(f"  {each.path}  {_kind(each.kind, each.likeness)}")
        if len(group.others) > _SHOWN:
            say(f"  … {len(group.others) - _SHOWN:,} more")
    if len(groups) > _SHOWN:
        say(f"… {len(groups) - _SHOWN:,} more groups: --page, --csv or --json has them all")


def _say_matches(matches: Sequence["Match"]) -> None:
    for match in matches[:_SHOWN]:
        say(f"{match.path}  {_kind(match.kind, match.likeness)}: {match.other}")
    if len(matches) > _SHOWN:
        say(f"… {len(matches) - _SHOWN:,} more: --csv or --json has them all")


def _kind(kind: str, likeness: float) -> str:
    return f"near, {likeness:.2f}" if kind == "near" else kind


def _move(root: Path, paths: Sequence[Path], wanted: ResultOptions, as_json: bool) -> "Moved | None":
    """Move these files of a folder into another one, or say what would be moved."""
    from dmuh.duplicates import Moved, move, plan_moves

    into = wanted.move_to
    if into is None:
        return None
    moves = plan_moves(root, paths, into)
    if not wanted.yes:
        if not as_json:
            for each in moves[:_SHOWN]:
                say(f"would move {each.source} to {each.target}")
            more = f" (… and {len(moves) - _SHOWN:,} more)" if len(moves) > _SHOWN else ""
            say(f"{len(moves):,} files would be moved{more}; nothing was moved: add --yes to do it")
        return Moved(0, ())
    moved = move(moves, into)
    for sentence in moved.left[:_SHOWN]:
        warn(f"not moved: {sentence}")
    if not as_json:
        say(f"{moved.n:,} files moved to {into}; take it back by: dmuh duplicates --undo {shlex.quote(str(into))}")
    return moved


def _undo(folder: Path, as_json: bool) -> None:
    from dmuh.duplicates import undo

    moved = undo(folder)
    for sentence in moved.left[:_SHOWN]:
        warn(f"not moved back: {sentence}")
    if as_json:
        say_json({"folder": str(folder), "moved_back": moved.n, "not_moved": list(moved.left)})
    else:
        say(f"{moved.n:,} files moved back")
