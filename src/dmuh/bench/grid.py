"""A grid of runs, as a TOML file describes it.

    [settings]              what all runs share
    dataset = "cifar10"

    [methods.dpsh]          what only the runs of one method have
    eta = 10.0

    [[table]]               a table of results: lists are axes, and its runs are all their combinations
    name = "methods"
    method = ["dmuh", "dpsh"]
    bits = [12, 24]
    seed = [0, 1, 2]

A table may have a `title`, name a `preset`, which those of its methods take that have it, and as `published` the data
set of the paper that stands beside it, and as `measure` another column of the results than `map`, which it shows, such
as map_text_to_image; `study = true` looks closer at the uncertainty of its runs. Runs that stand in
several tables are made once. A section `tuning` lets settings be chosen first: see `dmuh.bench.tuning`.
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

_SECTIONS = ("settings", "methods", "tuning", "table")
_PLACE = ("data", "device", "workers")  # settings that say where a run is made, not what it is
_LATER = {
    "recode": "never",
    "text_encoder": "minilm",
    "wrong_labels": "keep",
    "texts": "",
}  # settings that came later, as runs had them before: those keep their names


@dataclass(frozen=True)
class Table:
    """One table: its name, what varies in it, in the order of the file, its title, and the paper's data set beside.

    measure  the column of the results that it shows
    """

    name: str
    axes: dict[str, list[Any]]
    title: str
    published: str
    measure: str = "map"


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
        config = self.config
        return f"{config.data.dataset}-{config.method}-{config.network.bits}-{config.training.seed}-{digest}"

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return all settings by section but those that say where the run is made; a file of weights is its name."""
        sections = {
            name: {key: value for key, value in section.items() if key not in _PLACE and _LATER.get(key) != value}
            for name, section in self.config.to_dict().items()
        }
        sections["network"]["weights"] = Path(sections["network"]["weights"]).name
        return sections

    def merged(self, other: "Cell | None") -> "Cell":
        """Return this run as one with another of the same settings, which an earlier table has, if there is one."""
        if other is None:
            return self
        tables = tuple(dict.fromkeys((*other.tables, *self.tables)))
        return Cell(other.config, other.preset, tables, other.study or self.study)


@dataclass(frozen=True)
class Grid:
    """All runs of a file, in its order, and its tables."""

    cells: list[Cell]
    tables: list[Table]


@dataclass(frozen=True)
class Sections:
    """What the file of a grid says: settings of all runs and of each method's, its tables, and what is tuned first."""

    shared: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    tables: list[Any]
    tuning: dict[str, Any]


def read_grid(path: Path, overrides: Mapping[str, Any], chosen: Mapping[str, Mapping[str, Any]] | None = None) -> Grid:
    """Read a grid; `overrides` are settings that all its runs take, whatever the file says.

    `chosen` are settings by method that go before those of the file's methods: what tuning found.
    """
    file = read_sections(path)
    shared = file.shared
    methods = {name: {**file.methods.get(name, {}), **(chosen or {}).get(name, {})} for name in METHODS}
    cells: dict[str, Cell] = {}
    tables: list[Table] = []
    for number, section in enumerate(file.tables, start=1):
        if not isinstance(section, dict):
            raise ConfigError(f"{path}, table {number} must be a section, got {section!r}")
        try:
            table = _table(dict(section), number)
            for cell in _cells(table, dict(section), shared, methods, overrides):
                cells[cell.name] = cell.merged(cells.get(cell.name))
        except ConfigError as error:
            raise ConfigError(f"{path}, table {number}: {error}") from error
        if table.name in [other.name for other in tables]:
            raise ConfigError(f"{path} has two tables named {table.name}")
        tables.append(table)
    return Grid(list(cells.values()), tables)


def read_sections(path: Path) -> Sections:
    """Return what the file of a grid says, with all names checked but not yet their values."""
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the grid {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    for key in file:
        if key not in _SECTIONS:
            raise ConfigError(f"{path}: {unknown('section', key, _SECTIONS)}")
    shared, methods, tables = file.get("settings", {}), file.get("methods", {}), file.get("table", [])
    tuning = file.get("tuning", {})
    if not isinstance(methods, dict):
        raise ConfigError(f"{path}: methods must be sections, write [methods.dmuh]")
    for name, section in (("settings", shared), ("tuning", tuning), *methods.items()):
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: {name} must be a section, got {section!r}")
    if not tables or not isinstance(tables, list):
        raise ConfigError(f"{path} has no table: write [[table]] with a name and lists such as bits = [12, 24]")
    for name in methods:
        if name not in METHODS:
            raise ConfigError(f"{path}: {unknown('method', name, METHODS)}")
    return Sections(shared, methods, tables, tuning)


def _table(table: dict[str, Any], number: int) -> Table:
    name = table.get("name", f"table{number}")
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise ConfigError(f"name must be letters, digits and -, got {name!r}")
    texts = {key: table.get(key, "") for key in ("title", "published", "preset", "measure")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ConfigError(f"{key} must be a text, got {text!r}")
    axes = {key: value for key, value in table.items() if isinstance(value, list)}
    for key, values in axes.items():
        if key in _PLACE:
            raise ConfigError(f"{key} must be one value: it says where runs are made, not what they are")
        if not values or len(set(map(repr, values))) < len(values):
            raise ConfigError(f"{key} must be a list of different values, got {values!r}")
    return Table(name, axes, texts["title"] or name, texts["published"], texts["measure"] or "map")


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
    for key in ("name", "title", "published", "measure"):
        given.pop(key, None)
    cells = []
    for values in itertools.product(*table.axes.values()):
        settings = given | dict(zip(table.axes, values, strict=True))
        method = str(({"method": "dmuh"} | dict(shared) | settings | dict(overrides))["method"])
        taken = preset if method in METHODS and preset in METHODS[method].presets else ""
        config = configure(shared, by_method.get(method, {}), settings, overrides, preset=taken)
        cells.append(Cell(config, taken, (table.name,), study))
    if preset and not any(cell.preset for cell in cells):
        raise ConfigError(unknown("preset", preset, {name for cell in cells for name in _presets(cell)}))
    return cells


def _presets(cell: Cell) -> list[str]:
    return list(METHODS[cell.config.method].presets)
