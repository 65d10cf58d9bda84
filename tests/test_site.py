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


def build(folder: Path) -> None:
    """Build the site, which runs the notebooks on its way."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]


def words_of(page: Path) -> str:
    text = re.sub(r"<[^>]+>", "", page.read_text())
    return re.sub(r"\s+", " ", text.replace("\u00a0", " "))


def test_the_site(tmp_path):
    """One test, since the site is built once."""
    needs("mkdocs-material", "docs", "material")
    build(tmp_path)
    every_public_name_is_explained(tmp_path)
    every_command_method_and_setting_is_listed(tmp_path)
    measured_tables_are_on_their_pages(tmp_path)
    nothing_comes_from_elsewhere(tmp_path)
    for source in NOTEBOOKS:
        a_notebook_was_run_and_has_pictures(source.stem, tmp_path)


def every_public_name_is_explained(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text()
    for name in dmuh.__all__:
        if name != "__version__":
            assert f'id="dmuh.{name}"' in page, name
    assert "&gt;&gt;&gt; " not in re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)  # examples are code


def every_command_method_and_setting_is_listed(site: Path) -> None:
    commands = words_of(site / "reference" / "command-line.html")
    ran = subprocess.run([sys.executable, "-m", "dmuh.cli", "train", "--help"], capture_output=True, text=True)
    options = re.findall(r"--[a-z][a-z-]+", ran.stdout)
    assert len(options) > 10
    for option in [*options, "--sheet", "dmuh warm"]:
        assert option in commands or option == "--help", option
    methods = words_of(site / "reference" / "methods.html")
    assert [name for name in METHODS if name not in methods] == []
    assert "weight_decay" in words_of(site / "reference" / "settings.html")


def measured_tables_are_on_their_pages(site: Path) -> None:
    assert "0.677 ± 0.007" in words_of(site / "results.html")
    speed, measured = words_of(site / "speed.html"), (ROOT / "benchmarks" / "results" / "search.md").read_text()
    assert [time for time in re.findall(r"[\d.]+ ms", measured) if time not in speed] == []


def nothing_comes_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="?(https?:[^" >]+)')
    for page in site.rglob("*.html"):
        if page.name != "report.html":
            assert loaded.findall(page.read_text()) == [], page


def a_notebook_was_run_and_has_pictures(name: str, site: Path) -> None:
    page = site / "notebooks" / f"{name}.html"
    text = page.read_text()
    pictures = re.findall(rf'<img alt="[^"]+" src="({name}-\d+\.png)"', text)
    assert pictures or 'src="data:image/' in text, name
    assert all((page.parent / picture).stat().st_size > 3000 for picture in pictures)
    assert (page.parent / f"{name}.ipynb").exists()
