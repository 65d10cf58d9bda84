"""Build sdist and wheel and check them: python .ci/dist.py [FOLDER], run by `make dist`.

Checked is that their descriptions are valid, that the wheel, which is built from the sdist, holds every file of the
package and no other, and that the wheel, in an empty environment that is lent the packages of this one, shows its help,
lists its methods and finds its page.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # what is built alone counts
TRIED = """
import dmuh, dmuh.cli, importlib.resources as resources, pathlib, sys
assert pathlib.Path(dmuh.__file__).is_relative_to(sys.prefix), dmuh.__file__
for name in ("server/page/page.html", "report/page.css", "report/published.toml", "py.typed"):
    assert resources.files("dmuh").joinpath(name).is_file(), name
print("dmuh", dmuh.__version__)
"""


def main(folder: Path) -> None:
    """Build into the folder, check, and say what is there."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # which setuptools would take old files from
    for old in folder.glob("dmuh-*"):
        old.unlink()
    # The sdist is built from the tree, the wheel from the sdist: both hold all that they need.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check_files(wheel)
    with tempfile.TemporaryDirectory() as scratch:
        try_wheel(wheel, Path(scratch))
    print(f"{wheel} and {sdist} are fit to be published")


def check_files(wheel: Path) -> None:
    """Compare what a wheel holds of the package with what git knows of it."""
    known = run("git", "ls-files", "-co", "--exclude-standard", "src/dmuh").split("\n")
    wanted = {str((ROOT / name).relative_to(SOURCE)) for name in known if name and (ROOT / name).is_file()}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if held != wanted:
        raise SystemExit(f"missing in the wheel: {sorted(wanted - held)}; there by mistake: {sorted(held - wanted)}")


def try_wheel(wheel: Path, scratch: Path) -> None:
    """Install the wheel without its dependencies, lend it those of this environment, and use it."""
    venv.create(scratch / "venv", with_pip=False)
    python = scratch / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(packages) / "lent.pth").write_text(sysconfig.get_path("purelib"))
    print(run(python, "-c", TRIED, cwd=scratch), end="")
    assert "train" in run(scratch / "venv" / "bin" / "dmuh", "--help", cwd=scratch)
    assert "itq" in run(scratch / "venv" / "bin" / "dmuh", "list", "--methods", cwd=scratch)


def run(*command: object, cwd: Path = ROOT) -> str:
    """Return what a command prints; end with its errors if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, text=True, capture_output=True, env=ENVIRONMENT)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
