"""Equal effort for every method: its settings are chosen on held-out training images before the tables are run.

    [tuning]                what all tries have beside [settings]
    tries = 6               of each method: its settings as they are, and a seeded choice among what follows
    tuning = 0.3            of the training images, which are queries and database: no test image takes part
    bits = 32
    seed = 7
    sure = 1                may be left out: tries are judged by soft ranking with so many bits of sureness per bit

    [tuning.methods.dpsh]   what is tried of one method: all combinations of these lists may be drawn
    weight_decay = [0.03, 0.1, 0.3]
    eta = [1.0, 10.0]

The try with the highest MAP, of a method for images and texts the mean of both directions, gives its settings to all
runs of its method in the tables.
"""

import csv
import functools
import io
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.bench.cells import score_of, summary_of
from dmuh.bench.grid import Cell, Grid, Table, read_sections
from dmuh.bench.runner import State, run_grid
from dmuh.encoder.calibration import SURE
from dmuh.errors import ConfigError
from dmuh.files import write_text
from dmuh.methods import METHODS, configure

FOLDER, CHOICE = "tuning", "tuning.csv"


@dataclass(frozen=True)
class Try:
    """One try: the method, the settings in which it differs from the method's own, and its run."""

    method: str
    settings: dict[str, Any]
    cell: Cell


@dataclass(frozen=True)
class Tuning:
    """All tries of a file, for each method what they are drawn from, and by which ranking they are judged.

    sure  bits of sureness per bit of soft ranking; None is Hamming distance
    """

    tries: list[Try]
    spaces: dict[str, dict[str, list[Any]]]
    sure: int | None = None

    @functools.cached_property
    def grid(self) -> Grid:
        """The runs of all tries, with a table for each method."""
        tables = [
            Table(name, {"method": [name], **space}, f"tries of {name}", "") for name, space in self.spaces.items()
        ]
        return Grid([one.cell for one in self.tries], tables)

    def best(self, folder: Path) -> dict[str, Try]:
        """Return of each method the try with the highest MAP, the earlier of two; of failed ones the first."""
        found: dict[str, tuple[float, Try]] = {}
        for one in self.tries:
            measured = score_of(_summary(folder, one), self.sure)
            score = -1.0 if measured is None else measured
            if one.method not in found or score > found[one.method][0]:
                found[one.method] = score, one
        return {name: best for name, (_, best) in found.items()}

    def write(self, folder: Path) -> None:
        """Write one line for each try: what it changed, what it gave, and whether it was chosen."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["method", "settings", "map", "error", "chosen", "run"])
        best = self.best(folder)
        for one in self.tries:
            summary = _summary(folder, one)
            measured = score_of(summary, self.sure)
            score = "" if measured is None else f"{measured:.6f}"
            chosen = "yes" if one is best[one.method] else ""
            writer.writerow(
                [one.method, json.dumps(one.settings), score, summary.get("error", ""), chosen, one.cell.name]
            )
        write_text(folder / CHOICE, text.getvalue())


def tune(
    tuning: Tuning, out: Path, *, jobs: int = 1, report: Callable[[State], None] = lambda _: None
) -> dict[str, dict[str, Any]]:
    """Make all tries below `out/tuning`, write down what they gave, and return the settings chosen for each method."""
    folder = out / FOLDER
    if tuning.tries:
        run_grid(tuning.grid, folder, jobs=jobs, report=report)
        tuning.write(folder)
    return chosen_settings(tuning, out)


def chosen_settings(tuning: Tuning, out: Path) -> dict[str, dict[str, Any]]:
    """Return for each method what its best try changes, by the tries that are done."""
    return {name: one.settings for name, one in tuning.best(out / FOLDER).items()}


def read_tuning(path: Path, overrides: Mapping[str, Any]) -> Tuning:
    """Read what the file of a grid says about tuning; without a section `tuning` there are no tries."""
    sections = read_sections(path)
    given = dict(sections.tuning)
    spaces = given.pop("methods", {})
    n_tries, sure = given.pop("tries", None), given.pop("sure", None)
    if not sections.tuning:
        return Tuning([], {})
    try:
        _check(n_tries, spaces, sure)
        tries: list[Try] = []
        for method, space in spaces.items():
            layers = sections.shared, sections.methods.get(method, {}), {**given, "method": method}
            tries += _drawn(method, space, layers, overrides, n_tries)
    except ConfigError as error:
        raise ConfigError(f"{path}, tuning: {error}") from error
    return Tuning(tries, spaces, sure)


def _drawn(
    method: str,
    space: Mapping[str, list[Any]],
    layers: tuple[Mapping[str, Any], ...],
    overrides: Mapping[str, Any],
    n_tries: int,
) -> list[Try]:
    """Return the tries of a method: its settings as they are, and others drawn from all combinations of the lists."""
    combinations = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    tries: dict[str, Try] = {}
    seed = configure(*layers, overrides).training.seed
    order = np.random.default_rng((seed, *method.encode())).permutation(len(combinations)).tolist()
    for settings in ({}, *(combinations[n] for n in order)):
        config = configure(*layers, settings, overrides)
        if not config.protocol.tuning:
            raise ConfigError("settings are chosen by training images that are held out: give tuning, such as 0.3")
        cell = Cell(config, "", (method,), study=False)
        tries.setdefault(cell.name, Try(method, settings, cell))
        if len(tries) == n_tries:
            break
    return list(tries.values())


def _check(n_tries: Any, spaces: Any, sure: Any) -> None:
    """Raise unless there is a number of tries, lists to draw them from, and a ranking to judge them by."""
    if sure is not None and (isinstance(sure, bool) or sure not in SURE):
        raise ConfigError(f"sure must be 0, 1 or 2, got {sure!r}")
    if not isinstance(n_tries, int) or isinstance(n_tries, bool) or n_tries < 1:
        raise ConfigError(f"tries must be a whole number at least 1, got {n_tries!r}")
    if not isinstance(spaces, dict) or not spaces:
        raise ConfigError("what is tried must be sections of lists, such as [tuning.methods.dmuh] with beta = [0.1, 1]")
    for method, space in spaces.items():
        if method not in METHODS or not isinstance(space, dict):
            raise ConfigError(f"methods must be sections named after methods, got {method} = {space!r}")
        for key, values in space.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"{key} of {method} must be a list of values, got {values!r}")


def _summary(folder: Path, one: Try) -> dict[str, Any]:
    return summary_of(folder / "runs" / one.cell.name) or {}
