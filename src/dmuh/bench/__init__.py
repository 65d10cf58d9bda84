"""Grids of runs: the whole experiment from one file, interrupted and resumed at any moment."""

from dmuh.bench.grid import Cell, Grid, Table, read_grid
from dmuh.bench.results import RESULTS
from dmuh.bench.runner import State, estimate, run_grid

__all__ = ["RESULTS", "Cell", "Grid", "State", "Table", "estimate", "read_grid", "run_grid"]
