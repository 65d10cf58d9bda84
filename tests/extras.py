"""Nothing is skipped in silence: what is installed is tested, and the end of a run lists what was skipped and why."""

import importlib
import warnings
from collections import Counter
from importlib import metadata
from typing import Any

import pytest


def needs(distribution: str, extra: str | None, module: str | None = None) -> Any:
    """Return the module of a distribution; skip what follows where it is not installed, fail where it is broken.

    `extra` is the one of dmuh that brings it, if any does.
    """
    wanted = distribution if extra is None else f"'dmuh[{extra}]'"
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: pip install {wanted}", allow_module_level=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports itself
            return importlib.import_module(module or distribution)
    except Exception as error:
        why = f"{distribution} {version} is installed and does not import: {error!r}"
        pytest.fail(f"{why}; {wanted} is not tested so: make clean install sets everything up anew", pytrace=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end of a run what was skipped and why."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
