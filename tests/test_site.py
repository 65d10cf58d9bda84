"""The docs site builds without a warning, has what it promises, and loads nothing from elsewhere; its notebooks run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dmuh
from dmuh.methods import METHODS
from extras import needs

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, which runs the notebooks on its way."""
    needs("mkdocs-material", "docs", "material")
    folder = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return folder


def words_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text()))


def test_every_public_name_is_explained(site):
    page = (site / "reference" / "python.html").read_text()
    for name in dmuh.__all__:
        if name != "__version__":
            assert f'id="dmuh.{name}"' in page, name
    assert "&gt;&gt;&gt; " not in re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)  # examples are code


def test_every_command_method_and_setting_is_listed(site):
    commands = words_of(site / "reference" / "command-line.html")
    ran = subprocess.run(
        [sys.executable, "-m", "dmuh.cli", "train", "--help"], capture_output=True, text=True, check=True
    )
    for option in re.findall(r"--[a-z][a-z-]+", ran.stdout):
        assert option in commands
    assert "--sheet" in commands
    methods = words_of(site / "reference" / "methods.html")
    assert all(name in methods for name in METHODS)
    assert "weight_decay" in words_of(site / "reference" / "settings.html")


def test_measured_tables_are_on_their_pages(site):
    assert "0.677 ± 0.007" in words_of(site / "results.html")
    assert "0.095 ms" in words_of(site / "speed.html")


def test_nothing_comes_from_elsewhere(site):
    for page in site.rglob("*.html"):
        if page.name != "report.html":
            found = re.findall(
                r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="?(https?:[^" >]+)', page.read_text()
            )
            assert found == [], page


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda source: source.stem)
def test_notebooks_were_run_and_have_pictures(source, site):
    page = site / "notebooks" / f"{source.stem}.html"
    pictures = re.findall(rf'<img alt="[^"]+" src="({source.stem}-\d+\.png)"', page.read_text())
    assert pictures
    assert all((page.parent / picture).stat().st_size > 3000 for picture in pictures)
    assert (page.parent / f"{source.stem}.ipynb").exists()
