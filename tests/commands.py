"""Commands as a user types them, run in this process."""

import dataclasses
import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from dmuh.cli import main


@dataclasses.dataclass
class Result:
    stdout: str
    stderr: str


def dmuh(*arguments: object, code: int = 0, encoding: str = "utf-8") -> Result:
    """Run a command in this process, whose output has this encoding."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["dmuh", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert (stopped.value.code or 0) == code, err.getvalue()
    return Result(out.buffer.getvalue().decode(encoding), err.getvalue())


def refused(*arguments: object) -> str:
    """Run a command that must fail: one sentence on stderr, exit code 2, nothing on stdout."""
    result = dmuh(*arguments, code=2)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dmuh: ")
    return lines[0]
