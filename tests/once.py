"""What all workers of a test run use and one of them makes."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path


def made_once(root: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder in `root` that the first process to ask fills by `make(folder)`; the others wait for it.

    Nobody may change what is in it.
    """
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # which another one left half made
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
