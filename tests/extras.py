"""What an optional part of dmuh promises is tested wherever that part is installed: it is skipped nowhere else."""

import importlib
from importlib import metadata

import pytest


def needs(distribution: str, extra: str, module: str | None = None) -> None:
    """Skip what follows where a distribution is not installed; where it is, but does not import, fail."""
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: pip install 'dmuh[{extra}]'", allow_module_level=True)
    try:
        importlib.import_module(module or distribution)
    except Exception as error:
        why = f"{distribution} {version} is installed and does not import: {error!r}"
        pytest.fail(f"{why}; dmuh[{extra}] is not tested so: make clean install sets everything up anew", pytrace=False)
