"""Processes for tests that kill one or need several: real ones, forked by a server that has imported torch before.

To start Python with torch and all of dmuh takes some five seconds of computing, most trainings of the tests take one.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dmuh.cli

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["dmuh.cli.train", "dmuh.trainer", "dmuh.trainer.evaluation"])


class Started:
    """A function that runs in a process of its own, with the variables of this environment and some more."""

    def __init__(self, function: Callable[..., None], *arguments: object, **variables: str) -> None:
        self._files = []
        for _ in ("output", "errors"):
            opened, name = tempfile.mkstemp(prefix="dmuh-process-")
            os.close(opened)
            self._files.append(Path(name))
        given = (function, arguments, os.environ | variables, Path.cwd(), self._files)
        self._process = _CONTEXT.Process(target=_run, args=given)
        self._process.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def kill(self) -> int:
        """Send SIGKILL, which nothing can catch; return the exit code, that is negative if a signal ended it."""
        self._process.kill()
        return self.finish()[0]

    def finish(self, seconds: float = 900) -> tuple[int, str, str]:
        """Wait until it ends, or kill it after so long; return the exit code, output and errors."""
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        output, errors = (file.read_text() for file in self._files)
        for file in self._files:
            file.unlink()
        return self._process.exitcode, output, errors


def start_command(*arguments: object, **variables: str) -> Started:
    """Start a dmuh command."""
    return Started(main, *map(str, arguments), **variables)


def main(*arguments: str) -> None:
    """Be a dmuh command."""
    sys.argv = ["dmuh", *arguments]
    dmuh.cli.main()


def _run(function: Callable[..., None], arguments: tuple, environment: dict, folder: Path, files: list[Path]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in zip((1, 2), files, strict=True):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), number)
    function(*arguments)
