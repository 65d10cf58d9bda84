"""The rules of the house, read off the source."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dmuh

SOURCE = Path(dmuh.__file__).parent
ORDER = ["errors", "machine", "progress", "files", "config", "codes", "index", "metrics", "images", "datasets", "texts",
         "protocols", "catalogue", "collection", "backbones", "network", "methods", "runs", "encoder", "features",
         "duplicates", "wrong_labels", "trainer", "opening", "review", "shards", "handover", "hashes", "estimator",
         "bench", "report", "server", "cli"]  # fmt: skip
WITH_TORCH = {"backbones", "network", "methods", "encoder/onnx_export.py", "encoder/onnx_operators.py",
              "encoder/onnx_recorder.py", "trainer", "estimator", "bench"}  # fmt: skip
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


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_a_stage_imports_only_earlier_stages():
    wrong = []
    for path in MODULES:
        own = stage(path)
        if own in ("__init__", "__main__"):
            continue
        assert own in ORDER, f"{own} is a new stage: give it a place in the order"
        for name, _ in imports(path):
            parts = name.split(".")
            if parts[0] == "dmuh" and len(parts) > 1 and parts[1] != "__version__":
                wrong += [(name_of(path), name)] * (ORDER.index(parts[1]) > ORDER.index(own))
    assert not wrong


def test_search_and_reports_never_import_torch():
    light = [path for path in MODULES if not {stage(path), name_of(path)} & (WITH_TORCH | {"cli"})]
    assert not [(name_of(path), name) for path in light for name, _ in imports(path) if name.split(".")[0] == "torch"]


def test_only_the_command_line_prints():
    def prints(path: Path) -> bool:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        return any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls)

    assert not [name_of(path) for path in MODULES if stage(path) != "cli" and prints(path)]


def test_public_names():
    assert dmuh.__all__ == [
        "Codes", "Collection", "Config", "CrossModalHashing", "Dataset", "DmuhError", "HammingIndex", "Hasher",
        "Hashing", "Matches", "Metrics", "__version__", "configure", "evaluate", "hand_over", "load_dataset", "one_hot",
        "show_matches", "train",
    ]  # fmt: skip
    assert all(getattr(dmuh, name) is not None for name in dmuh.__all__)
    assert dir(dmuh) == sorted(dmuh.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Hash'"):
        dmuh.Hash  # noqa: B018


def without_torch(program: str, *arguments: object) -> str:
    """Run a program where torch cannot be imported; return what it printed."""
    program = "import sys; sys.modules['torch'] = None\n" + program
    command = [sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_search_and_measuring_load_no_torch():
    program = (
        "import sys, dmuh; dmuh.Codes; dmuh.HammingIndex; dmuh.evaluate; dmuh.Collection; dmuh.load_dataset;"
        "dmuh.Hasher; import dmuh.report.page; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_a_finished_run_encodes_and_searches_without_torch(digit_run, digit_hasher, photos, tmp_path):
    image = photos / "ones" / "03.png"
    program = """
import dmuh, json
from dmuh.cli import main
run, photos, image, index = sys.argv[1:]
codes = dmuh.Hasher.load(run).encode(image)
print(json.dumps([codes.bits[0].tolist(), codes.uncertainty[0].tolist()]))
for command in (["index", run, photos, "--out", index], ["search", index, image, "-k", "1", "--json"]):
    sys.argv = ["dmuh", *command]
    try: main()
    except SystemExit as stopped: assert not stopped.code
"""
    first, second, *answer = without_torch(program, digit_run.path, photos, image, tmp_path / "index").splitlines()
    codes = digit_hasher.encode(image)
    assert json.loads(first) == [codes.bits[0].tolist(), codes.uncertainty[0].tolist()]
    assert second == f"20 images indexed: {tmp_path / 'index'}"
    (found,) = json.loads("\n".join(answer))[0]["matches"]
    assert (found["path"], found["identical"], found["hamming"]) == (str(image), True, 0)


def test_a_missing_torch_says_what_to_install(digit_run, tmp_path):
    program = """
import dmuh
for attempt in (lambda: dmuh.train, lambda: dmuh.configure, lambda: dmuh.Hasher.load(sys.argv[1]),
                lambda: dmuh.Hasher.load(sys.argv[1], "cuda")):
    try: attempt()
    except dmuh.DmuhError as error: print(error)
"""
    shutil.copy(digit_run.path / "model.safetensors", tmp_path)
    needs = "needs an optional part of dmuh: pip install 'dmuh[train]'"
    assert without_torch(program, tmp_path).splitlines() == [
        f"dmuh.train {needs}",
        f"dmuh.configure {needs}",
        f"the first use of {tmp_path} {needs}",
        f"encoding on cuda {needs}",
    ]
