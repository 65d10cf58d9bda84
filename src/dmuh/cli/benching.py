"""dmuh bench and report: whole experiments."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.errors import DmuhError, needs_torch

if TYPE_CHECKING:
    from dmuh.bench import State


def bench(
    config: Annotated[Path, typer.Argument(help="TOML file of a grid, such as those in configs/bench.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and of results.csv.")],
    data: Annotated[Path | None, typer.Option(help="Folder or file the data set is read from.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs made at the same time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and about how long.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting that all runs take.")] = None,
    as_json: console.Json = False,
) -> None:
    """Make all runs of a grid: data sets × methods × bits × seeds × any setting.

    Runs that are done are left alone, those that were broken off go on: the same command again is always right.

    Example: dmuh bench configs/bench/digits.toml --out bench/digits && dmuh report bench/digits --out results/digits
    """
    from dmuh.config import parse_override

    with needs_torch("a bench"):
        from dmuh.bench import RESULTS, estimate, read_grid, run_grid

    overrides = console.given(data=data) | dict(parse_override(text) for text in set_ or [])
    grid = read_grid(config, overrides)
    if dry_run:
        _say_plan(estimate(grid, out, jobs), as_json)
        return
    try:
        with console.grid_bar() as progress:
            failed = run_grid(grid, out, jobs=jobs, report=progress)
    except KeyboardInterrupt:
        raise DmuhError("stopped; the same command goes on from here") from None
    for cell, error in failed:
        warn(f"{cell.name}: {error}")
    result: dict[str, Any] = {"results": str(out / RESULTS), "runs": len(grid.cells), "failed": len(failed)}
    if as_json:
        say_json(result)
    else:
        say(f"{len(grid.cells):,} runs, {len(failed):,} of them failed: {out / RESULTS}")


def report(
    benches: Annotated[list[Path], typer.Argument(help="Folders made by `dmuh bench`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the tables, the figures and the page.")],
    title: Annotated[str, typer.Option(help="Title of the page.")] = "",
    as_json: console.Json = False,
) -> None:
    """Write the tables and figures of benches, as files and as one page.

    Tables are Markdown, LaTeX and CSV, figures SVG (light and dark) and PNG; index.html has all of it.
    """
    from dmuh.report.experiment import write_report

    write_report(benches, out, title)
    say_json({"page": str(out / "index.html")}) if as_json else say(f"the page is at {(out / 'index.html').absolute()}")


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
