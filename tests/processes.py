"""Processes for tests that kill one or need several: real ones, forked by a server that has imported torch before.

To start Python with torch and all of dmuh takes some three seconds of computing, most trainings of the tests take one;
a service imports for more than a second, and answers a test in a tenth of that.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import dmuh.cli

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["dmuh.cli.train", "dmuh.trainer", "dmuh.trainer.evaluation", "dmuh.server.api.app", "dmuh.server.images.decoders"]
)
_OF_TESTS = "of the tests"


def started_by_dmuh() -> list[multiprocessing.Process]:
    """The processes that dmuh has started here: not the services and commands that tests did, which others share."""
    running = multiprocessing.active_children()  # noqa: TID251
    return [process for process in running if process.name != _OF_TESTS]


class Started:
    """A function that runs in a process of its own, with the variables of this environment and some more."""

    def __init__(self, function: Callable[..., None], *arguments: object, **variables: str) -> None:
        self._needed: object = None
        self._files = []
        for _ in ("output", "errors"):
            opened, name = tempfile.mkstemp(prefix="dmuh-process-")
            os.close(opened)
            self._files.append(Path(name))
        given = (function, arguments, os.environ | variables, Path.cwd(), self._files)
        self._process = _CONTEXT.Process(target=_run, args=given, name=_OF_TESTS)
        self._process.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error."""
        return self._process.exitcode not in (None, 0)

    def keep(self, needed: object) -> None:
        """Hold what it needs, until it has finished."""
        self._needed = needed

    def kill(self) -> int:
        """Send SIGKILL, which nothing can catch; return the exit code, that is negative if a signal ended it."""
        self._process.kill()
        return self.finish()[0]

    def finish(self, seconds: float = 900) -> tuple[int, str, str]:
        """Wait until it ends, or kill it after so long; return the exit code, output and errors."""
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        self._needed = None
        output, errors = (file.read_text() for file in self._files)
        for file in self._files:
            file.unlink()
        return self._process.exitcode, output, errors


class Command:
    """A dmuh command that goes on while its output is read; what it has is named as in subprocess.Popen."""

    def __init__(self, *arguments: object) -> None:
        opened, name = tempfile.mkstemp(prefix="dmuh-process-")
        os.close(opened)
        self._errors = Path(name)
        read, write = os.pipe()
        with Connection(write, readable=False) as output:
            given = ([*map(str, arguments)], dict(os.environ), Path.cwd(), output, self._errors)
            self._process = _CONTEXT.Process(target=_command, args=given, name=_OF_TESTS)
            self._process.start()
        self.stdout = os.fdopen(read)
        self.kill, self.terminate = self._process.kill, self._process.terminate

    def poll(self) -> int | None:
        """Return the exit code, None as long as it runs."""
        return self._process.exitcode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Wait until it ends, at most so long; return the output that was not read yet, and the errors."""
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            raise TimeoutError(f"it did not end: {self._errors.read_text()}")
        with self.stdout:
            said = self.stdout.read()
        told = self._errors.read_text()
        self._errors.unlink()
        return said, told


def start_command(*arguments: object, **variables: str) -> Started:
    """Start a dmuh command."""
    return Started(main, *map(str, arguments), **variables)


def main(*arguments: str) -> None:
    """Be a dmuh command."""
    sys.argv = ["dmuh", *arguments]
    dmuh.cli.main()


def _run(function: Callable[..., None], arguments: tuple, environment: dict, folder: Path, files: list[Path]) -> None:
    with files[0].open("wb") as output:
        _settle(environment, folder, output.fileno(), files[1])
    function(*arguments)


def _command(arguments: list[str], environment: dict, folder: Path, output: Connection, errors: Path) -> None:
    with output:
        _settle(environment, folder, output.fileno(), errors)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # that of the server remembers a file that it could go back in
    main(*arguments)


def _settle(environment: dict, folder: Path, output: int, errors: Path) -> None:
    """Be in a place, with this output and a file for errors."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(output, 1)
    with errors.open("wb") as opened:
        os.dup2(opened.fileno(), 2)
