"""A grid of runs, as a TOML file describes it.

    [settings]              what all runs share
    dataset = "cifar10"

    [methods.dpsh]          what the runs of one method have of their own
    eta = 10.0

    [[table]]               a table of results: lists are axes, and its runs are all their combinations
    name = "methods"
    method = ["dmuh", "dpsh"]
    bits = [12, 24]
    seed = [0, 1, 2]

A table may have a `title`, name a `preset`, which those of its methods take that have it, and as `published` the data
set of the paper that stands beside it; `study = true` looks closer at the uncertainty of its runs. Runs that stand in
several tables are made once.
"""

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.config import Config
from dmuh.errors import ConfigError, unknown
from dmuh.methods import METHODS, configure

_PLACE = ("data", "device", "workers")  # settings that say where a run is made, not what it is


@dataclass(frozen=True)
class Table:
    """One table: its name, what varies in it, in the order of the file, a title, and what of the paper it is beside."""

    name: str
    axes: dict[str, list[Any]]
    title: str
    published: str


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    config  its settings
    preset  the method's preset they are made from, or nothing
    tables  the names of the tables it stands in
    study   whether its uncertainty is looked at closer
    """

    config: Config
    preset: str
    tables: tuple[str, ...]
    study: bool

    @functools.cached_property
    def name(self) -> str:
        """The name of its folder: what it is in words, and a digest of all settings."""
        digest = hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:8]
        own = self.config
        return f"{own.data.dataset}-{own.method}-{own.network.bits}-{own.training.seed}-{digest}"

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return all settings by section but those that say where the run is made; a file of weights is its name."""
        sections = self.config.to_dict()
        kept = {s: {k: v for k, v in own.items() if k not in _PLACE} for s, own in sections.items()}
        kept["network"]["weights"] = Path(kept["network"]["weights"]).name
        return kept


@dataclass(frozen=True)
class Grid:
    """All runs of a file, in its order, and its tables."""

    cells: list[Cell]
    tables: list[Table]


def read_grid(path: Path, overrides: Mapping[str, Any]) -> Grid:
    """Read a grid; `overrides` are settings that all its runs take, whatever the file says."""
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the grid {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    for key in file:
        if key not in ("settings", "methods", "table"):
            raise ConfigError(f"{path}: {unknown('section', key, ['settings', 'methods', 'table'])}")
    shared, methods, tables = file.get("settings", {}), file.get("methods", {}), file.get("table", [])
    if not isinstance(methods, dict):
        raise ConfigError(f"{path}: methods must be sections, write [methods.dmuh]")
    for name, section in (("settings", shared), *methods.items()):
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: {name} must be a section, got {section!r}")
    if not tables or not isinstance(tables, list):
        raise ConfigError(f"{path} has no table: write [[table]] with a name and lists such as bits = [12, 24]")
    for name in methods:
        if name not in METHODS:
            raise ConfigError(f"{path}: {unknown('method', name, METHODS)}")
    cells: dict[str, Cell] = {}
    read: list[Table] = []
    for number, table in enumerate(tables, start=1):
        if not isinstance(table, dict):
            raise ConfigError(f"{path}, table {number} must be a section, got {table!r}")
        try:
            own = _table(dict(table), number)
            for cell in _cells(own, dict(table), shared, methods, overrides):
                known = cells.get(cell.name)
                if known is not None:
                    names = (*known.tables, *(name for name in cell.tables if name not in known.tables))
                    cell = Cell(known.config, known.preset, names, known.study or cell.study)
                cells[cell.name] = cell
        except ConfigError as error:
            raise ConfigError(f"{path}, table {number}: {error}") from error
        if own.name in [other.name for other in read]:
            raise ConfigError(f"{path} has two tables named {own.name}")
        read.append(own)
    return Grid(list(cells.values()), read)


def _table(table: dict[str, Any], number: int) -> Table:
    name = table.get("name", f"table{number}")
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise ConfigError(f"name must be letters, digits and -, got {name!r}")
    texts = {key: table.get(key, "") for key in ("title", "published", "preset")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ConfigError(f"{key} must be a text, got {text!r}")
    axes = {key: value for key, value in table.items() if isinstance(value, list)}
    for key, values in axes.items():
        if key in _PLACE:
            raise ConfigError(f"{key} must be one value: it says where runs are made, not what they are")
        if not values or len(set(map(repr, values))) < len(values):
            raise ConfigError(f"{key} must be a list of different values, got {values!r}")
    return Table(name, axes, texts["title"] or name, texts["published"])


def _cells(
    table: Table,
    given: dict[str, Any],
    shared: Mapping[str, Any],
    by_method: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Any],
) -> list[Cell]:
    preset, study = given.pop("preset", ""), given.pop("study", False)
    if not isinstance(study, bool):
        raise ConfigError(f"study must be true or false, got {study!r}")
    for key in ("name", "title", "published"):
        given.pop(key, None)
    cells = []
    for values in itertools.product(*table.axes.values()):
        own = given | dict(zip(table.axes, values, strict=True))
        method = str(({"method": "dmuh"} | dict(shared) | own | dict(overrides))["method"])
        taken = preset if method in METHODS and preset in METHODS[method].presets else ""
        config = configure(shared, by_method.get(method, {}), own, overrides, preset=taken)
        cells.append(Cell(config, taken, (table.name,), study))
    if preset and not any(cell.preset for cell in cells):
        raise ConfigError(unknown("preset", preset, {name for cell in cells for name in _presets(cell)}))
    return cells


def _presets(cell: Cell) -> list[str]:
    return list(METHODS[cell.config.method].presets)
