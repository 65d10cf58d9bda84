"""Every public name has an example in its docstring, and every example does what it shows."""

import doctest
import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dmuh
import dmuh.images
from extras import needs

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = [
    importlib.import_module(name)
    for name in sorted({module.name for module in pkgutil.walk_packages(dmuh.__path__, "dmuh.")})
    if not name.endswith("__main__")
]
EXAMPLES = {
    f"{test.name}": test for module in MODULES for test in doctest.DocTestFinder().find(module) if test.examples
}


def public() -> Iterator[tuple[str, object]]:
    """Yield the public names, and the methods and properties that their classes define."""
    for name in dmuh.__all__:
        value = getattr(dmuh, name)
        if name == "__version__":
            continue
        yield name, value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and isinstance(
                    member, property | classmethod | staticmethod | type(public)
                ):
                    yield f"{name}.{attribute}", member


def test_every_public_name_has_an_example():
    without = [name for name, value in public() if ">>>" not in (inspect.getdoc(value) or "")]
    assert not without


@pytest.fixture(scope="session")
def photo_index(digit_run, digit_hasher, photos, tmp_path_factory) -> Path:
    """The photos, indexed by a small run."""
    collection = dmuh.Collection(tmp_path_factory.mktemp("doctest") / "index")
    images = dmuh.load_dataset("folder", photos)
    collection.write(digit_hasher.encode(images), images, digit_run.path, digit_hasher.digest)
    collection.build_index()
    return collection.path


@pytest.fixture
def namespace(digit_run, photo_index, photos, tmp_path) -> dict[str, object]:
    """What examples may name without making it: folders of a run, of its index, of images, and an empty one."""
    folders = {"run": digit_run.path, "index_folder": photo_index, "photos": photos, "folder": tmp_path}
    return {"dmuh": dmuh, "np": np} | folders


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_does_what_it_shows(name, namespace):
    test = EXAMPLES[name]
    if "to_pandas" in test.docstring:
        needs("pandas", "dev")
    said: list[str] = []
    logging.getLogger("dmuh").setLevel(logging.CRITICAL)
    try:
        test.globs = {**test.globs, **namespace}
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    finally:
        logging.getLogger("dmuh").setLevel(logging.NOTSET)
    assert not said, "".join(said)
