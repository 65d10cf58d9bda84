"""A grid of runs, made by worker processes; what is done is left alone, what was broken off goes on."""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dmuh.bench.cells import run_cell, summary_of
from dmuh.bench.grid import Cell, Grid
from dmuh.bench.results import write_results
from dmuh.errors import RunError
from dmuh.files import locked
from dmuh.machine import cores
from dmuh.methods import METHODS
from dmuh.runs import Run
from dmuh.workers import process_pool

_LOOK = 1.0  # seconds between two looks at how far the runs are
_ROUGH = {"deep": 25.0, "shallow": 60.0}  # seconds of a run on kept features of 5,000 images, where nothing is known


@dataclass(frozen=True)
class State:
    """How far a grid is: runs done, in all, and which are being made, with the epochs they have done."""

    done: int
    total: int
    failed: int
    running: list[tuple[str, int, int]]  # name, epochs done, epochs
    seconds_left: float


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
        left = [cell for cell in grid.cells if summary_of(_folder(out, cell)) is None]
        with _pool(jobs) as pool:
            threads = max(1, cores() // jobs)
            waiting = {pool.submit(run_cell, cell, _folder(out, cell), threads): cell for cell in left}
            try:
                while waiting:
                    report(_state(grid, out, waiting, jobs))
                    finished, _ = wait(waiting, timeout=_LOOK, return_when=FIRST_COMPLETED)
                    for future in finished:
                        waiting.pop(future)
                        future.result()
                    if finished:
                        write_results(grid, out)
            except BrokenProcessPool as error:
                raise RunError(
                    "a worker was killed, by the system if memory ran out: the same command goes on from here"
                ) from error
        report(_state(grid, out, {}, jobs))
    failed = []
    for cell in grid.cells:
        summary = summary_of(_folder(out, cell))
        if summary and "error" in summary:
            failed.append((cell, summary["error"]))
    return failed


def estimate(grid: Grid, out: Path, jobs: int) -> State:
    """Return how far a grid is and how long the rest takes, by the runs that are done, or roughly where none is."""
    left = {Future[None](): cell for cell in grid.cells if summary_of(_folder(out, cell)) is None}
    return _state(grid, out, left, jobs)


def _folder(out: Path, cell: Cell) -> Path:
    return out / "runs" / cell.name


def _state(grid: Grid, out: Path, waiting: dict[Future[None], Cell], jobs: int) -> State:
    summaries = {cell.name: summary_of(_folder(out, cell)) for cell in grid.cells}
    done = [summary for summary in summaries.values() if summary]
    running: list[tuple[str, int, int]] = []
    for future, cell in waiting.items():
        if future.running() and len(running) < jobs:
            running.append((cell.name, len(Run(_folder(out, cell)).metrics()), cell.config.training.epochs))
    left = sum(_seconds(cell, grid, summaries) for cell in waiting.values())
    begun = sum(_seconds(c, grid, summaries) for c in waiting.values() if Run(_folder(out, c)).started) / 2
    failed = sum("error" in summary for summary in done)
    return State(len(done), len(grid.cells), failed, running, (left - begun) / jobs)


def _seconds(cell: Cell, grid: Grid, summaries: dict[str, dict[str, object] | None]) -> float:
    """Return what a run will take: the mean of those done of its method, or of its kind."""
    kind = METHODS[cell.config.method].kind
    alike: dict[str, list[float]] = {"method": [], "kind": []}
    for other in grid.cells:
        summary = summaries[other.name]
        if summary is None or other.config.data.dataset != cell.config.data.dataset:
            continue
        seconds = float(str(summary["train_seconds"])) + 3
        if other.config.method == cell.config.method:
            alike["method"].append(seconds)
        if METHODS[other.config.method].kind == kind:
            alike["kind"].append(seconds)
    known = alike["method"] or alike["kind"] or [_ROUGH[kind]]
    return sum(known) / len(known)


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Give worker processes; if anything stops this one they are killed: their runs are whole up to the last epoch."""
    pool = process_pool(jobs)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
