"""Commands in a terminal of their own, which sees what a person would and sends Ctrl-C as the keyboard does."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType

_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command whose input, output and errors are one terminal of 80 columns; a context manager."""

    def __init__(self, *command: object, columns: int = 80) -> None:
        self._parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        settings = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdin=child, stdout=child, stderr=child, start_new_session=True,
            env=settings | {"TERM": "xterm"}, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(child)
        self._written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a letter

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._parent)

    def read_until(self, happened: Callable[[str], bool]) -> None:
        """Read what the command writes until this is true of it, or of the world."""
        deadline = time.monotonic() + 300
        while not happened(_STYLE.sub("", self._written)):
            assert self._read(), self._written[-1000:]
            assert time.monotonic() < deadline, self._written[-1000:]

    def press_ctrl_c(self) -> None:
        """Have the terminal interrupt all its processes."""
        os.write(self._parent, b"\x03")

    def end(self) -> tuple[int, list[str]]:
        """Wait for the end; return the exit code and the lines that were written, without colours."""
        while self._read():
            pass
        code = self.process.wait(60)
        return code, _STYLE.sub("", self._written).replace("\r\n", "\n").splitlines()

    def _read(self) -> bool:
        try:
            more = os.read(self._parent, 65536)
        except OSError:  # nobody can write any more
            return False
        self._written += self._decoder.decode(more)
        return bool(more)


def shown(*arguments: object, columns: int = 80) -> list[str]:
    """Run a dmuh command to its good end in a terminal; return the lines it wrote."""
    with Terminal("-m", "dmuh.cli", *arguments, columns=columns) as terminal:
        code, lines = terminal.end()
    assert code == 0, lines
    return lines
