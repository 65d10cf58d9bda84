import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Server, client_of
from starlette.testclient import TestClient

from chromium import launched
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


@pytest.fixture(scope="module")
def shared(digit_hasher, photos, tmp_path_factory) -> Iterator[TestClient]:
    """A client of a service over twenty images, which tests do not change."""
    root = tmp_path_factory.mktemp("shared")
    shutil.copytree(photos, root / "photos")
    with client_of(digit_hasher, root / "photos", root / "state") as made:
        yield made


@pytest.fixture(scope="module")
def browser():
    with launched() as running:
        yield running


@pytest.fixture(scope="session")
def server(model, photos, tmp_path_factory) -> Iterator[Server]:
    """A service over twenty images, which tests do not change."""
    with Server(model, "--images", photos, "--state", tmp_path_factory.mktemp("page") / "state") as running:
        yield running


@pytest.fixture
def own_server(model, folder, tmp_path) -> Iterator[Server]:
    """A service that the test may change."""
    with Server(model, "--images", folder, "--state", tmp_path / "state") as running:
        yield running


@pytest.fixture
def page(browser, server):
    from browsing import watched

    with watched(browser, server) as page:
        page.goto(server.address)
        yield page


@pytest.fixture
def own_page(browser, own_server):
    from browsing import watched

    with watched(browser, own_server) as page:
        page.goto(own_server.address)
        yield page
