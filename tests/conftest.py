import importlib
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
    """Begin with the long tests where several workers share them, so that none is left with one at the end."""
    for item in items:
        if "bench" in getattr(item, "fixturenames", ()):  # a whole experiment
            item.add_marker("long")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
