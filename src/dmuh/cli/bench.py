"""dmuh bench."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.cli.options import SET_HELP, Json, OnBadImage, flag, given
from dmuh.cli.stopping import GOES_ON, stoppable
from dmuh.errors import needs_torch

if TYPE_CHECKING:
    from dmuh.bench import State


@stoppable(GOES_ON)
def bench(
    config: Annotated[
        Path, typer.Argument(metavar="GRID", help="TOML file of a grid, such as those in configs/bench.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the runs and of results.csv.")],
    data: Annotated[Path | None, typer.Option(metavar="PATH", help="Folder or file the data set is read from.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Runs made at the same time.")] = 1,
    dry_run: Annotated[bool, flag("--dry-run", help="Only say what would be done, and about how long.")] = False,
    on_bad_image: OnBadImage = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)] = None,
    as_json: Json = False,
) -> None:
    """Make all runs of a grid: data sets × methods × bits × seeds × any setting.

    Example: dmuh bench configs/bench/digits.toml --out bench/digits

    Runs that are done are left alone, those that were stopped go on: the same command again is always right. Where the
    file has a section `tuning`, settings are chosen by held-out training images first. Next: dmuh report.
    """
    from dmuh.config import parse_override

    with needs_torch("a bench"):
        from dmuh.bench import RESULTS, TUNING, chosen_settings, estimate, read_grid, read_tuning, run_grid, tune

    overrides = given(data=data, on_bad_image=on_bad_image) | dict(parse_override(text) for text in set_ or [])
    tuning = read_tuning(config, overrides)
    grid = read_grid(config, overrides, chosen_settings(tuning, out))
    if dry_run:
        _say_plan(estimate(tuning.grid, out / TUNING, jobs).followed_by(estimate(grid, out, jobs)), as_json)
        return
    with console.grid_bar() as progress:
        chosen = tune(tuning, out, jobs=jobs, report=progress)
        grid = read_grid(config, overrides, chosen)
        failed = run_grid(grid, out, jobs=jobs, report=progress)
    for method, settings in chosen.items():
        found = ", ".join(f"{key} {value}" for key, value in settings.items()) or "its settings as they were"
        if not as_json:
            say(f"{method} was tuned to {found}")
    for cell, error in failed:
        warn(f"{cell.name}: {error}")
    result: dict[str, Any] = {"results": str(out / RESULTS), "runs": len(grid.cells), "failed": len(failed)}
    if chosen:
        result["tuned"] = chosen
    if as_json:
        say_json(result)
    else:
        say(f"{len(grid.cells):,} runs, {len(failed):,} of them failed: {out / RESULTS}")


def _say_plan(state: "State", as_json: bool) -> None:
    if as_json:
        say_json({"runs": state.total, "done": state.done, "left": state.left, "seconds": round(state.seconds_left)})
        return
    for name in state.left:
        say(name)
    rough = " (roughly: none is done to tell by)" if not state.done else ""
    rest = f", the rest takes {_duration(state.seconds_left)}{rough}" if state.left else ""
    say(f"{state.done:,} of {state.total:,} runs are done{rest}")


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{max(minutes, 1)} min"
