import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import client_of
from starlette.testclient import TestClient

from dmuh.encoder import export_run


@pytest.fixture(scope="session")
def model(digit_run, tmp_path_factory) -> Path:
    """The digits' network as it was exported."""
    folder = tmp_path_factory.mktemp("served") / "model"
    export_run(digit_run.path, folder)
    return folder


@pytest.fixture
def folder(photos, tmp_path) -> Path:
    """A folder of images of the test's own."""
    return shutil.copytree(photos, tmp_path / "photos")


@pytest.fixture
def client(digit_hasher, folder, tmp_path) -> Iterator[TestClient]:
    with client_of(digit_hasher, folder, tmp_path / "state") as made:
        yield made
