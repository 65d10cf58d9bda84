"""Helps and tables, as they look in a terminal of 80 columns."""

import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from commands import dmuh
from dmuh.cli import app
from dmuh.cli.options import OptionGroup, with_groups
from terminal import Terminal, shown

IN_ORDER = ["open", "demo", "list", "train", "index", "search", "serve", "encode", "export", "duplicates", "review",
            "evaluate", "bench", "report", "cache", "warm"]  # fmt: skip
PANELS = ["Options", "Start here", "Search your images", "Tidy your images", "Measure and compare", "This machine"]


def help_of(command: str) -> str:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    return result.output


def test_commands_stand_in_groups_in_the_order_of_use():
    text = help_of("")
    assert re.findall(r"^[╭┌+][─-] (.*?) [─-]", text, flags=re.M) == PANELS
    assert re.findall(r"^[│|] ([a-z]+) ", text, flags=re.M) == IN_ORDER
    assert re.findall(r"^[│|] +--", text, flags=re.M)


@pytest.mark.parametrize("command", IN_ORDER)
def test_a_help_has_an_example_and_names_no_types_that_say_nothing(command):
    text = help_of(command)
    assert re.search(rf"Example: dmuh {command}\b", text)
    assert "<bool>" not in text
    assert "list[" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in re.sub(r"csv, …|train … with", "", text)  # nothing is cut
    about = next(registered.help or "" for registered in app.registered_commands if registered.name == command)
    assert " ".join(about.split()) in " ".join(text.split())  # nor taken for markup


def test_a_help_in_a_terminal_fits_it():
    lines = shown("serve", "--help")
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(line.strip("│ ") for line in lines).split())
    assert "in a folder .dmuh inside --images" in text
    assert "--state photos.state" in text


TWO_TABLES = """
import sys
from dmuh.cli import main
for command in (["list"], ["list", "--settings"]):
    sys.argv = ["dmuh", *command]
    try: main()
    except SystemExit as stopped: assert not stopped.code
    print("---")
"""


@pytest.mark.long
def test_tables_fit_a_terminal_and_no_word_of_the_settings_is_lost():
    with Terminal("-c", TWO_TABLES) as terminal:  # in one process, which loads torch
        code, lines = terminal.end()
    assert code == 0, lines
    end = lines.index("---")
    assert max(map(len, lines[:end])) <= 80
    assert any(line.startswith("  dmuh ") for line in lines[:end])
    lines = lines[end + 1 : -1]
    assert max(map(len, lines)) <= 80
    piped = dmuh("list", "--settings").stdout
    assert max(map(len, piped.splitlines())) > 120  # one row is one line, for grep
    assert sorted(" ".join(lines).split()) == sorted(piped.split())


@dataclass(frozen=True)
class Colours(OptionGroup):
    front: Annotated[str, typer.Option(help="In front.")] = "black"
    back: Annotated[str | None, typer.Option(help="Behind.")] = None


def test_a_group_is_its_options_one_by_one():
    painted = []

    @with_groups
    def paint(wall: str, colours: Colours = Colours(), twice: bool = False) -> None:  # noqa: B008
        painted.append((wall, colours, twice))

    painter = typer.Typer()
    painter.command()(paint)
    assert CliRunner().invoke(painter, ["north", "--back", "red", "--twice"]).exit_code == 0
    assert CliRunner().invoke(painter, ["south", "--front", "blue"]).exit_code == 0
    assert painted == [("north", Colours("black", "red"), True), ("south", Colours("blue", None), False)]
    assert painted[1][1].given() == {"front": "blue"}
