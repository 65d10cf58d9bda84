"""A grid of runs, made by worker processes; what is done is left alone, what was interrupted goes on."""

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.bench.cells import run_cell, summary_of
from dmuh.bench.grid import Cell, Grid
from dmuh.bench.results import write_results
from dmuh.errors import RunError
from dmuh.files import locked
from dmuh.machine import cores
from dmuh.machine.workers import killable_pool, result_of, uninterrupted, wait_for_one
from dmuh.methods import METHODS
from dmuh.runs import Run

_LOOK = 1.0  # seconds between two looks at how far the runs are
_AROUND = 3.0  # seconds of a run beside its training
_ROUGH = {"deep": 25.0, "shallow": 60.0}  # seconds of a run on kept features of 5,000 images, where nothing is known


@dataclass(frozen=True)
class State:
    """How far a grid is: runs done, in all, those left, and those being made, with the epochs they have done."""

    done: int
    total: int
    failed: int
    left: list[str]  # names
    running: list[tuple[str, int, int]]  # name, epochs done, epochs
    seconds_left: float

    def followed_by(self, other: "State") -> "State":
        """Return how far two grids are together, of which the other comes after this one."""
        return State(
            self.done + other.done,
            self.total + other.total,
            self.failed + other.failed,
            self.left + other.left,
            self.running + other.running,
            self.seconds_left + other.seconds_left,
        )


def run_grid(
    grid: Grid, out: Path, *, jobs: int = 1, report: Callable[[State], None] = lambda _: None
) -> list[tuple[Cell, str]]:
    """Make all runs of a grid below `out`, `jobs` at a time; return those whose training went wrong, and why.

    `out/results.csv` has a line for every run that is done.
    """

    def busy() -> None:
        raise RunError(f"another process is making the runs in {out}")

    with locked(out / ".lock", busy):
        write_results(grid, out)
        left = [cell for cell in grid.cells if _summary(out, cell) is None]
        with killable_pool(jobs) as pool:
            threads = max(1, cores() // jobs)
            with uninterrupted():
                waiting = {pool.submit(run_cell, cell, _folder(out, cell), threads): cell for cell in left}
            try:
                while waiting:
                    with uninterrupted():
                        running = [cell for future, cell in waiting.items() if future.running()]
                    report(_state(grid, out, list(waiting.values()), running[:jobs], jobs))
                    finished = wait_for_one(waiting, _LOOK)
                    for future in finished:
                        waiting.pop(future)
                        result_of(future)
                    if finished:
                        write_results(grid, out)
            except BrokenProcessPool as error:
                raise RunError(
                    "a worker was killed, by the system if memory ran out: the same command goes on from here"
                ) from error
        report(_state(grid, out, [], [], jobs))
    summaries = [(cell, _summary(out, cell) or {}) for cell in grid.cells]
    return [(cell, summary["error"]) for cell, summary in summaries if "error" in summary]


def estimate(grid: Grid, out: Path, jobs: int) -> State:
    """Return how far a grid is and how long the rest takes, by the runs that are done, or roughly where none is."""
    left = [cell for cell in grid.cells if _summary(out, cell) is None]
    return _state(grid, out, left, [], jobs)


def _folder(out: Path, cell: Cell) -> Path:
    return out / "runs" / cell.name


def _state(grid: Grid, out: Path, left: list[Cell], running: list[Cell], jobs: int) -> State:
    names = {cell.name: None for cell in left}
    done = [(cell, summary) for cell in grid.cells if cell.name not in names and (summary := _summary(out, cell))]
    seconds = _expected(done)
    rest = sum(map(seconds, left))
    shown = []
    for cell in running:
        epochs = len(Run(_folder(out, cell)).metrics())
        shown.append((cell.name, epochs, cell.config.training.epochs))
        rest -= seconds(cell) * epochs / cell.config.training.epochs
    failed = sum("error" in summary for _, summary in done)
    return State(len(done), len(grid.cells), failed, list(names), shown, rest / jobs)


def _summary(out: Path, cell: Cell) -> dict[str, Any] | None:
    return summary_of(_folder(out, cell))


def _expected(done: list[tuple[Cell, dict[str, Any]]]) -> Callable[[Cell], float]:
    """Return what tells the seconds of a run: the mean of those done of its method on its data, or of its kind."""
    known: dict[tuple[str, str], list[float]] = {}
    for cell, summary in done:
        for name in (cell.config.method, METHODS[cell.config.method].kind):
            known.setdefault((cell.config.data.dataset, name), []).append(summary["train_seconds"] + _AROUND)
    mean = {key: sum(values) / len(values) for key, values in known.items()}

    def seconds(cell: Cell) -> float:
        dataset, kind = cell.config.data.dataset, METHODS[cell.config.method].kind
        return mean.get((dataset, cell.config.method)) or mean.get((dataset, kind)) or _ROUGH[kind]

    return seconds
