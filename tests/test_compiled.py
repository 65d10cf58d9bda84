"""Compiled functions where their machine code cannot be kept: read-only installs, full disks, torn caches."""

import ast
import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import IndexDataCacheFile

import dmuh
from dmuh.encoder import export_run
from dmuh.index.compiled import NotKeptError, _Files, only_kept

SOURCE = Path(dmuh.__file__).parent
ORDER = """
import numpy as np
from dmuh.index.hash_table import order_by
print(order_by(np.array([2, 0, 2]), 3)[1].tolist())
"""
NO_ROOM = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "


def copied(folder: Path) -> Path:
    shutil.copytree(SOURCE, folder / "dmuh", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def read_only(tmp_path) -> Path:
    """An install in which nobody can keep anything, root neither: what would be a folder is a file."""
    folder = copied(tmp_path / "read-only")
    for package in {file.parent for file in folder.rglob("*.py")}:
        (package / "__pycache__").write_bytes(b"")
    return folder


def run(installed: Path, program: str, *arguments: object, **own: str) -> str:
    """Run a program with such an install and without a home; return what it prints."""
    hidden = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "DMUH_CACHE", "HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": "/dev/null", "PYTHONPATH": str(installed), **own}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=installed)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbi"))


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Path:
    """An install that has kept its machine code."""
    installed = copied(tmp_path_factory.mktemp("warm") / "installed")
    assert run(installed, ORDER) == "[1, 0, 2]\n"
    return installed


@pytest.mark.long
def test_the_machine_code_is_kept_beside_the_source(warm):
    (file,) = kept(warm)
    assert file.parent == warm / "dmuh" / "index" / "__pycache__"


@pytest.mark.long
def test_a_folder_that_the_user_names_is_used(read_only, tmp_path):
    assert run(read_only, ORDER, NUMBA_CACHE_DIR=str(tmp_path / "own")) == "[1, 0, 2]\n"
    assert kept(tmp_path / "own")


@pytest.mark.long
def test_a_read_only_install_without_a_home_compiles_and_keeps_nothing(read_only, tmp_path):
    assert run(read_only, ORDER) == "[1, 0, 2]\n"
    assert not kept(tmp_path)


@pytest.mark.long
def test_where_machine_code_is_kept_can_be_told(read_only, tmp_path):
    program = "from dmuh.index.hash_table import order_by as f; from dmuh.index.compiled import kept_in; "
    program += "import numpy as np; f(np.arange(2), 2); print(kept_in(f))"
    assert run(read_only, program) == "None\n"
    assert run(read_only, program, NUMBA_CACHE_DIR=str(tmp_path / "own")).startswith(str(tmp_path / "own"))


@pytest.mark.long
def test_a_full_disk_does_not_matter(tmp_path):
    installed = copied(tmp_path / "installed")
    assert run(installed, NO_ROOM + ORDER) == "[1, 0, 2]\n"
    assert not kept(installed)


@pytest.mark.long
@pytest.mark.parametrize("left", [b"", b"no cache", b"\x80\x04"])
def test_a_torn_cache_is_made_anew(warm, tmp_path, left):
    installed = shutil.copytree(warm, tmp_path / "installed")
    (file,) = kept(installed)
    whole = file.read_bytes()
    file.write_bytes(left)
    assert run(installed, ORDER) == "[1, 0, 2]\n"
    run(installed, ORDER)
    assert len(file.read_bytes()) == len(whole)


@pytest.mark.long
def test_a_read_only_install_without_a_home_searches(read_only, digit_run, photos, tmp_path):
    model, codes = tmp_path / "model", tmp_path / "codes"
    export_run(digit_run.path, model)
    program = "from dmuh.cli import main; main()"
    assert "20 images indexed" in run(read_only, program, "index", model, photos, "--out", codes)
    (answer,) = json.loads(run(read_only, program, "search", codes, photos / "ones" / "03.png", "-k", 1, "--json"))
    assert (answer["matches"][0]["hamming"], answer["matches"][0]["identical"]) == (0, True)


def test_where_only_kept_machine_code_is_asked_for_nothing_is_compiled(tmp_path):
    file = tmp_path / "of_this_test.py"
    file.write_text("from dmuh.index.compiled import compiled\n\n@compiled()\ndef twice(x):\n    return 2 * x\n")

    def twice(number: int) -> int:
        """Call the function as a process does that has just begun."""
        return runpy.run_path(str(file))["twice"](number)

    with only_kept(), pytest.raises(NotKeptError):
        twice(3)
    assert twice(3) == 6
    with only_kept():
        assert twice(4) == 8
        with pytest.raises(NotKeptError):
            twice(0.5)


SEVERAL = """
import sys
from of_this_test import twice
print([twice(number) for number in eval(sys.argv[1])])
"""


@pytest.mark.long
def test_processes_that_compile_one_function_at_once_get_its_machine_code_for_their_types(tmp_path):
    source = "from dmuh.index.compiled import compiled\n\n@compiled()\ndef twice(x):\n    return x + x\n"
    (tmp_path / "of_this_test.py").write_text(source)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE.parent}", "PYTHONSAFEPATH": "1"}
    kinds = ("[1]", "[0.5]", "[1j]", "[(1, 2)]")
    expected = ("[2]", "[1.0]", "[2j]", "[(1, 2, 1, 2)]")
    for _ in range(2):  # compiled by four processes at once, then found by four others
        running = [
            subprocess.Popen(
                [sys.executable, "-c", SEVERAL, kind], env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path
            )
            for kind in kinds
        ]
        assert tuple(process.communicate()[0].strip() for process in running) == expected
    assert len(list(tmp_path.rglob("*.nbc"))) == len(kinds)


@pytest.mark.long
def test_a_function_is_compiled_anew_when_one_that_it_calls_was_changed(tmp_path):
    kernel = "from dmuh.index.compiled import compiled\n{}\n@compiled()\ndef {}(x):\n    return {}\n"
    (tmp_path / "outer.py").write_text(kernel.format("from inner import inner", "outer", "inner(x) + 1"))
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE.parent}"}
    for body, expected in (("2 * x", "7\n"), ("2 * x", "7\n"), ("3 * x + 100", "110\n")):
        (tmp_path / "inner.py").write_text(kernel.format("", "inner", body))
        command = [sys.executable, "-c", "from outer import outer; print(outer(3))"]
        assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout == expected


def test_machine_code_of_an_older_source_is_neither_found_nor_left(tmp_path):
    _Files(tmp_path, "f", "older").save("int", "old code")
    newer = _Files(tmp_path, "f", "newer")
    assert newer.load("int") is None
    newer.save("float", "new code")
    assert (newer.load("float"), newer.load("int")) == ("new code", None)
    assert len(list(tmp_path.glob("*.nbc"))) == 1


def test_machine_code_that_was_not_written_whole_is_not_found(tmp_path, monkeypatch):
    _Files(tmp_path, "f", "source").save("int", "code for int")
    cut_off = _Files(tmp_path, "f", "source")
    monkeypatch.delattr(IndexDataCacheFile, "_save_index")  # the process ends before it gets there
    with pytest.raises(AttributeError):
        cut_off.save("float", "code for float")
    monkeypatch.undo()
    found = _Files(tmp_path, "f", "source")
    assert (found.load("int"), found.load("float")) == ("code for int", None)


def test_everything_is_compiled_that_way():
    uses = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "numba" and "njit" in [name.name for name in node.names]
    }
    assert uses == {"index/compiled.py"}
    assert not [file for file in SOURCE.rglob("*.py") if "numba.njit" in file.read_text()]
