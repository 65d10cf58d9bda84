"""The command line: the only part that prints. Commands import heavy modules themselves, so that help is quick."""

import codecs
import errno
import io
import logging
import os
import sys

import typer

from dmuh import __version__
from dmuh.cli import (
    bench,
    cache,
    demo,
    duplicates,
    encode,
    evaluate,
    export,
    index,
    list_names,
    open_folder,
    report,
    review,
    search,
    serve,
    train,
    warm,
)
from dmuh.cli.console import warn
from dmuh.cli.options import PlainCommand, PlainGroup
from dmuh.errors import DmuhError, PeerError, StoppedError, TrainingError
from dmuh.machine import place_in_group, wait_asleep

_ESCAPED = "dmuh.escaped"

_STOPPED = 130  # exit code of a command that Ctrl-C stopped: 128 and the number of the signal

app = typer.Typer(
    cls=PlainGroup,
    help="Learn short binary codes for images that know where they are unsure, search them and measure them.",
    epilog="Start: dmuh open FOLDER, a page of your own images, without labels; or dmuh demo. Codes for your own "
    "classes: dmuh train --dataset folder --data DIR --out RUN, then dmuh index RUN DIR --out INDEX, then "
    "dmuh search INDEX IMAGE. What a command takes: dmuh COMMAND --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_COMMANDS = {
    "Start here": {"open": open_folder.open_folder, "demo": demo.demo, "list": list_names.list_names},
    "Search your images": {
        "train": train.train,
        "index": index.index,
        "search": search.search,
        "serve": serve.serve,
        "encode": encode.encode,
        "export": export.export,
    },
    "Tidy your images": {"duplicates": duplicates.duplicates, "review": review.review},
    "Measure and compare": {"evaluate": evaluate.evaluate, "bench": bench.bench, "report": report.report},
    "This machine": {"cache": cache.cache, "warm": warm.warm},
}


def _one_line_per_paragraph(text: str) -> str:
    """Return a docstring as a help takes it, which breaks its lines itself."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        _help = _one_line_per_paragraph(_command.__doc__ or "")
        app.command(_name, cls=PlainCommand, help=_help, rich_help_panel=_panel)(_command)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line: a user's mistake is one sentence and exit code 2, Ctrl-C exit code 130."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("dmuh: %(message)s"))
    logging.getLogger("dmuh").handlers = [handler]
    wait_asleep()
    output = sys.stdout if isinstance(sys.stdout, io.TextIOWrapper) else None  # None also where a shell closed it
    if output:
        output.reconfigure(errors=_ESCAPED)
    first = True
    try:
        first = place_in_group()[0] == 0
        logging.getLogger("dmuh").setLevel(logging.INFO if first else logging.WARNING)
        try:
            app()
        finally:
            if output:
                output.flush()  # here, where it can be said that there is no room
    except (StoppedError, KeyboardInterrupt) as error:
        if first:
            warn(str(error) or "stopped; give the same command again")
        sys.exit(_STOPPED)
    except DmuhError as error:
        if first or not isinstance(error, PeerError | TrainingError):  # which the first process reports too
            warn(str(error))
        sys.exit(2)
    except BrokenPipeError:  # whoever read our output has left
        _write_no_more()
        sys.exit(1)
    except OSError as error:
        advice = _advice(error)
        if error.filename is None:
            if not advice:
                raise
            _write_no_more()  # it may be the output that has no room
        warn(f"{'' if error.filename is None else f'{error.filename}: '}{error.strerror}{advice}")
        sys.exit(2)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Write what a terminal or a file has no letters for as JSON does, which can read it again."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error(_ESCAPED, _escaped)


def _advice(error: OSError) -> str:
    """Return what to do about an error that may come from any file, if it is one."""
    from dmuh.files import no_room

    if no_room(error):
        return "; make room and give the same command again, a training with --resume: it goes on"
    return "; name a folder that can be written" if error.errno == errno.EROFS else ""


def _write_no_more() -> None:
    """Let what is left of the output go nowhere, so that Python does not try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
