"""A training begins soon: what takes a second to import is left until it is needed."""

import subprocess
import sys

import pytest

from dmuh.methods import METHODS
from dmuh.methods.dmuh import DMUH
from dmuh.methods.itq import ITQ
from dmuh.methods.table import MethodTable

HEAVY = ("torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "pandas", "numba")


def test_a_training_and_its_export_load_neither_torchs_compiler_nor_scikit_learn(photos, tmp_path):
    settings = {"dataset": "folder", "data": str(photos), "backbone": "smallconv", "image_size": 16, "epochs": 1}
    code = f"import sys, dmuh; run = dmuh.train(dmuh.configure({settings!r}), {str(tmp_path / 'run')!r})"
    code += f"; codes = dmuh.Hasher.load(run.path).encode({str(photos)!r})"
    code += f"; print(run.finished, len(codes), *[name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.strip()) == (0, "True 20"), ran.stderr


def test_a_method_is_imported_when_it_is_asked_for():
    table = MethodTable({"dmuh": DMUH, "itq": "dmuh.methods.itq:ITQ", "other": "dmuh.methods.nowhere:Other"})
    assert list(table) == ["dmuh", "itq", "other"]
    assert (len(table), "other" in table, "none" in table) == (3, True, False)
    assert (table["dmuh"], table["itq"]) == (DMUH, ITQ)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        table["other"]
    table["other"] = DMUH
    assert table["other"] is DMUH
    del table["other"]
    with pytest.raises(KeyError):
        table["other"]


def test_every_method_is_there():
    assert {method.kind for method in METHODS.values()} == {"deep", "shallow"}
