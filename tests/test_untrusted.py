"""Nothing that is read can run: what the source never calls, or calls only in the way that is safe."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dmuh

SOURCE = Path(dmuh.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
NEVER_IMPORTED = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "yaml", "runpy", "code"}
NEVER_CALLED = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp", "torch.jit.load",
                "torch.hub.load", "yaml.load", "np.fromfile"}  # fmt: skip
NEVER_METHODS = {"extractall", "extract", "read_pickle", "unpickle"}  # a tar file's names may lead anywhere
ONLY_WITH = {"np.load": ("allow_pickle", False), "numpy.load": ("allow_pickle", False),
             "torch.load": ("weights_only", True)}  # fmt: skip


def faults(source: str) -> list[str]:
    """What a module does that would let a file, or a request, run something."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"import {name}" for name in names if name.split(".")[0] in NEVER_IMPORTED]
            if isinstance(node, ast.ImportFrom) and node.module in ("numpy", "torch", "os", "tempfile"):
                risky = {"load", "system", "popen", "mktemp", "fromfile"}
                found += [f"from {node.module} import {alias.name}" for alias in node.names if alias.name in risky]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            if (
                name in NEVER_CALLED
                or name.rpartition(".")[2] in NEVER_METHODS
                or given.get("shell", False) is not False
            ):
                found.append(name)
            if name in ONLY_WITH and given.get(ONLY_WITH[name][0]) is not ONLY_WITH[name][1]:
                found.append(f"{name} without {ONLY_WITH[name][0]}={ONLY_WITH[name][1]}")
    return found


def test_nothing_that_is_read_can_run():
    found = {str(path.relative_to(SOURCE)): faults(path.read_text()) for path in MODULES}
    assert {name: own for name, own in found.items() if own} == {}


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "import numpy, yaml", "from numpy import load", "eval(x)", "exec(x)",
    "np.load(f)", "np.load(f, allow_pickle=True)", "np.load(f, allow_pickle=given)", "np.load(f, None, True)",
    "torch.load(f)", "torch.load(f, weights_only=False)", "archive.extractall(x)", "tempfile.mktemp()",
    "subprocess.run(x, shell=True)", "subprocess.run(x, shell=given)", "os.system(x)",
])  # fmt: skip
def test_every_fault_is_found(source):
    assert len(faults(source)) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["dmuh.encoder.onnx_network", "dmuh.encoder.onnx_export", "dmuh.server.api.app", "dmuh.index"]
)
def test_nothing_is_told_of_the_machine_that_dmuh_runs_on(module, tmp_path):
    """Importing ONNX Runtime makes an id of the machine, to report with."""
    own = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    own |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", f"import {module}"], env=own, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
