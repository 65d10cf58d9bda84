"""The rules of the house, read off the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dmuh

SOURCE = Path(dmuh.__file__).parent
ORDER = ["errors", "files", "config", "codes", "index", "metrics", "images", "datasets", "protocols", "collection",
         "backbones", "network", "methods", "runs", "trainer", "encoder", "report", "server", "cli"]  # fmt: skip
WITH_TORCH = {"backbones", "network", "methods", "trainer", "encoder"}
MODULES = sorted(SOURCE.rglob("*.py"))


def stage(path: Path) -> str:
    """The top-level module that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module of a file, and whether it is imported at run time rather than for types only."""
    tree = ast.parse(path.read_text())
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node not in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"dmuh.{alias.name}" for alias in node.names] if node.module == "dmuh" else [node.module]
            found += [(name, node not in typing_only) for name in names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_stage_imports_only_earlier_stages(path):
    own = stage(path)
    if own == "__init__":
        return
    assert own in ORDER, f"{own} is a new stage: give it a place in the order"
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "dmuh" and len(parts) > 1 and parts[1] != "__version__":
            assert ORDER.index(parts[1]) <= ORDER.index(own), f"{own} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_search_and_reports_never_import_torch(path):
    if stage(path) not in WITH_TORCH | {"cli"}:
        assert not [name for name, _ in imports(path) if name.split(".")[0] == "torch"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_command_line_prints(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert stage(path) == "cli" or not prints


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_unpickles(path):
    names = {name.split(".")[0] for name, _ in imports(path)}
    if path.name == "cifar10.py":  # distributed as pickles: read by an unpickler restricted to arrays
        assert "pickle.load" not in path.read_text()
        names.remove("pickle")
    assert not names & {"pickle", "dill", "joblib", "shelve", "marshal"}
    assert path.read_text().count("torch.load(") == path.read_text().count("weights_only=True)")
    assert "allow_pickle=True" not in path.read_text()


def test_public_names():
    assert dmuh.__all__ == [
        "Codes", "Collection", "Config", "Dataset", "DmuhError", "HammingIndex", "Hasher", "Matches", "Metrics",
        "__version__", "configure", "evaluate", "load_dataset", "one_hot", "train",
    ]  # fmt: skip
    assert all(getattr(dmuh, name) is not None for name in dmuh.__all__)
    assert dir(dmuh) == sorted(dmuh.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Hash'"):
        dmuh.Hash  # noqa: B018


def test_search_and_measuring_load_no_torch():
    program = (
        "import sys, dmuh; dmuh.Codes; dmuh.HammingIndex; dmuh.evaluate; dmuh.Collection; dmuh.load_dataset;"
        "import dmuh.report.page; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_a_missing_torch_says_what_to_install():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import dmuh\n"
        "try: dmuh.Hasher\n"
        "except dmuh.DmuhError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "dmuh.Hasher needs an optional part of dmuh: pip install 'dmuh[train]'\n"
