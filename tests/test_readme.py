"""What the README and the examples show is run as it stands there."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from commands import dmuh

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture(scope="module")
def folder(photos, tmp_path_factory) -> Path:
    """A folder as the README's reader has it."""
    root = tmp_path_factory.mktemp("readme")
    shutil.copytree(photos, root / "photos")
    (root / "configs").symlink_to(ROOT / "configs")
    (root / "query.jpg").write_bytes((photos / "ones" / "02.png").read_bytes())
    return root


@pytest.fixture
def workplace(folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.long
def test_commands(workplace):
    commands = [line.split("#")[0] for block in blocks("console") for line in block.splitlines()]
    ours = [shlex.split(command) for command in commands if command.startswith("dmuh ")]
    assert len(ours) >= 3
    for command in ours:
        serve(*command[1:]) if command[1] == "serve" else dmuh(*command[1:])
    assert (workplace / "answer.png").exists()
    assert (workplace / "bench" / "report" / "index.html").exists()


def serve(*arguments: str) -> None:
    """Run a service until it has answered."""
    command = [sys.executable, "-m", "dmuh.cli", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving 20 images at http://127.0.0.1:")
            with urllib.request.urlopen(f"{line.split()[4]}/api/images?n=1") as answer:
                assert answer.status == 200
        finally:
            process.terminate()


def test_make_targets():
    targets = re.findall(r"^make ([a-z-]+)", "\n".join(blocks("console")), flags=re.M)
    assert targets
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


@pytest.mark.long
def test_python(workplace, capsys):
    for program in blocks("python"):
        exec(compile(program, "README.md", "exec"), {})
    assert re.search(r"\[ *0 .*\] \['", capsys.readouterr().out)


@pytest.mark.long
def test_quickstart(tmp_path, monkeypatch, capsys):
    script = ROOT / "examples" / "quickstart.py"
    assert len(script.read_text().splitlines()) < 100
    monkeypatch.setattr(sys, "argv", [str(script), "1", str(tmp_path / "run")])
    runpy.run_path(str(script), run_name="__main__")
    assert "MAP 0." in capsys.readouterr().out


def test_links_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name} links to {target}"
