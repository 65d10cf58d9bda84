"""Grids of runs: the whole experiment from one file, interrupted and resumed at any moment."""

from dmuh.bench.grid import Cell, Grid, Table, read_grid
from dmuh.bench.results import RESULTS
from dmuh.bench.runner import State, estimate, run_grid
from dmuh.bench.tuning import FOLDER as TUNING
from dmuh.bench.tuning import chosen_settings, read_tuning, tune

__all__ = [
    "RESULTS",
    "TUNING",
    "Cell",
    "Grid",
    "State",
    "Table",
    "chosen_settings",
    "estimate",
    "read_grid",
    "read_tuning",
    "run_grid",
    "tune",
]
