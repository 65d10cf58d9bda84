import importlib
import itertools
import os

import pytest

from extras import pytest_terminal_summary  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    """Load what tests use, which takes seconds, but not where this process hands the tests to workers."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(importlib.import_module("shared_fixtures"))


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` makes: two more than cores, as tests wait for services and browsers."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each of several workers begin with its share of the long tests, so that none is left with one at the end."""
    for item in items:
        if "bench" in getattr(item, "fixturenames", ()):  # a whole experiment
            item.add_marker("long")
    if hasattr(config, "workerinput"):
        items[:] = _dealt(items, config.workerinput["workercount"])


def _dealt(items: list[pytest.Item], n_workers: int) -> list[pytest.Item]:
    """Return the tests in as many parts of equal length as there are workers, each with its long tests first.

    xdist gives a worker one such part, and later tests from the end of another one's. Those of a file stay together, as
    they share what takes long to make.
    """
    kinds = [(item.get_closest_marker("long") is None, item.path) for item in items]
    order = sorted(range(len(items)), key=lambda n: kinds[n][0])
    parts: list[list[pytest.Item]] = [[] for _ in range(n_workers)]
    for _, group in itertools.groupby(order, key=lambda n: kinds[n]):
        min(parts, key=len).extend(items[n] for n in group)
    return [item for part in parts for item in part]
