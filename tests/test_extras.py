"""The rules by which tests skip, tried on tests that are made for it; and that each optional part really works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmuh.index import HammingIndex, MilvusIndex
from extras import needs

TESTS = Path(__file__).parent


def run_tests(folder: Path, source: str) -> subprocess.CompletedProcess:
    (folder / "test_made.py").write_text(source)
    own = os.environ | {"PYTHONPATH": f"{folder}:{TESTS}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "extras", "-p", "no:cacheprovider", folder / "test_made.py"]
    return subprocess.run(command, env=own, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def broken(tmp_path) -> Path:
    """A folder with a distribution that is installed and does not import."""
    about = tmp_path / "broken_part-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-part\nVersion: 1.0\n")
    (tmp_path / "broken_part.py").write_text("import a_module_that_nobody_has")
    return tmp_path


@pytest.mark.long
def test_what_is_not_installed_is_skipped_and_listed(tmp_path):
    source = "import pytest\nfrom extras import needs\n"
    for n, reason in enumerate(["no lake", "no lake", "no sea"]):
        source += f"@pytest.mark.skipif(True, reason='{reason}')\ndef test_{n}(): pass\n"
    done = run_tests(tmp_path, source + "def test_more(): needs('no-such-part', 'lake')\ndef test_last(): pass\n")
    assert done.returncode == 0, done.stdout
    listed = done.stdout.partition("= skipped =")[2].splitlines()[1:4]
    assert listed == ["   2  no lake", "   1  no sea", "   1  no-such-part is not installed: pip install 'dmuh[lake]'"]


@pytest.mark.long
@pytest.mark.parametrize("inside", ["", "def test_it(): "])
def test_what_is_installed_and_does_not_import_fails(broken, inside):
    done = run_tests(broken, f"from extras import needs\n{inside}needs('broken-part', 'lake', 'broken_part')\n")
    assert done.returncode in (1, 2)
    assert "broken-part 1.0 is installed and does not import: ModuleNotFoundError" in done.stdout
    assert "make clean install" in done.stdout


@pytest.mark.filterwarnings("ignore")  # of pymilvus and what it imports
def test_the_embedded_engine_of_milvus_starts_where_it_is_installed(tmp_path):
    needs("milvus-lite", "milvus", "milvus_lite")
    index = MilvusIndex(f"milvus:{tmp_path / 'codes.db'}")
    assert len(index) == len(HammingIndex()) == 0
    index.close()


def test_no_test_skips_by_itself_what_it_cannot_import():
    """`pytest.importorskip` skips a part that is installed and broken, too."""
    asking = "pytest." + "importorskip"
    assert not [file for file in TESTS.rglob("*.py") if f"{asking}(" in file.read_text()]
