"""Progress bars: by rich on a terminal, as HTML in a notebook; elsewhere, as in a log file, a line per minute.

The first minute of a job has no line. Lines are logged: `dmuh` the command shows them, a program decides for itself.

A job that takes long is handed something that opens a bar: `counting_bar` shows one, `uncounted` does not.
"""

import html
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

log = logging.getLogger(__name__)

# Takes what is done and of how many, None if that is not known; gives what is told how many more are done.
Counting = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]

_SECONDS = 0.2  # between two pictures of a bar in a notebook
_MINUTE = 60.0  # seconds between two lines where there is neither a terminal nor a notebook
_WIDE = 100  # columns of a terminal that has room for a long bar
_LONG, _SHORT = 20, 8  # columns of a bar
_BESIDE = 32  # columns that stand beside a bar and its note, at most


def uncounted(what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """Open no bar: for jobs whose progress nobody asked for."""
    del what, total
    return nullcontext(lambda _: None)


@contextmanager
def counting_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with a rate and the time left; yields what is to be told how many more are done."""
    with Bar(what, total) as bar:
        yield bar.advance


class Bar:
    """A bar with a rate and the time left, and a note beside it; a context manager that shows it and clears it away.

    what            the words before the bar
    total           how many there are to do, or None while that is not known
    in_bytes        count in bytes
    in_percent      show a percentage in place of the count
    with_time_left  show the time left; a job that estimates it better says so in the note
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        in_bytes: bool = False,
        in_percent: bool = False,
        with_time_left: bool = True,
    ) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        width = _LONG if console.width >= _WIDE else _SHORT
        self._bar = _rich_bar(console, width, in_bytes, in_percent, with_time_left)
        self._task = self._bar.add_task(what, total=total, rate="", note="")
        self._notebook = _NotebookBar(self._bar) if console.is_jupyter else None
        self._room = sys.maxsize if self._bar.disable else console.width - width - _BESIDE  # of the note
        self._with_time_left = with_time_left
        self._told = time.monotonic()  # when the last line was logged, or the job began

    def __enter__(self) -> "Bar":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def total(self) -> float | None:
        """How many there are to do, if that is known."""
        return self._bar.tasks[0].total

    def start(self) -> None:
        """Show the bar, unless it is shown already."""
        try:
            self._bar.start()
        except BaseException:  # Ctrl-C, which can come before there is anything that would take the bar away
            self._bar.stop()
            raise

    def stop(self) -> None:
        """Take the bar away, if it is shown."""
        self._bar.stop()
        if self._notebook is not None:
            self._notebook.clear()

    def advance(self, n: int, *notes: str) -> None:
        """Say that `n` more are done; of the notes, the most important first, as many are shown as there is room."""
        speed = self._bar.tasks[0].speed
        self._update(advance=n, rate="" if speed is None else f"{speed:,.0f}/s", note=_fitting(notes, self._room))

    def set(self, done: int, total: int | None, *notes: str) -> None:
        """Say how many are done in all, and of how many; with notes as in `advance`."""
        self._update(completed=done, total=total, note=_fitting(notes, self._room))

    def _update(self, **values: Any) -> None:
        self._bar.update(self._task, **values)
        if self._notebook is not None:
            self._notebook.draw()
        elif self._bar.disable and time.monotonic() - self._told >= _MINUTE:
            self._told = time.monotonic()
            log.info(self._line())

    def _line(self) -> str:
        """Return how far the job is, in words."""
        task = self._bar.tasks[0]
        count = f"{task.completed:,.0f}" + ("" if task.total is None else f" of {task.total:,.0f}")
        seconds = task.time_remaining if self._with_time_left else None
        left = "" if seconds is None else f"{max(1, round(seconds / 60))} min left"
        notes = task.fields["note"].replace("  ", ", ")
        return ", ".join(filter(None, [f"{task.description}: {count}", left, notes]))


class _NotebookBar:
    """The first task of a bar of rich's as HTML, which needs no widgets."""

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._drawn = 0.0
        self._output: Any = None

    def draw(self) -> None:
        """Draw the bar, if it was not drawn just now."""
        if time.monotonic() - self._drawn < _SECONDS:
            return
        self._drawn = time.monotonic()
        task = self._bar.tasks[0]
        length = "" if task.total is None else f' max="{task.total:.0f}" value="{task.completed:.0f}"'
        left = "" if task.time_remaining is None else f"{task.time_remaining:.0f} s left"
        count = f"{task.completed:,.0f}" + ("" if task.total is None else f" of {task.total:,.0f}")
        words = [task.description, count, task.fields["rate"], left, task.fields["note"]]
        self._show(f"<div><progress{length}></progress> {html.escape('  '.join(filter(None, words)))}</div>")

    def clear(self) -> None:
        """Take the bar away."""
        if self._output is not None:
            self._show("")

    def _show(self, content: str) -> None:
        notebook: Any = importlib.import_module("IPython.display")
        picture = notebook.HTML(content)
        if self._output is None:
            self._output = notebook.display(picture, display_id=True)
        else:
            self._output.update(picture)


def _fitting(notes: Sequence[str], room: int) -> str:
    """Return the first notes, as many as fit."""
    text = ""
    for note in notes:
        longer = f"{text}  {note}" if text else note
        if len(longer) > room:
            break
        text = longer
    return text


def _rich_bar(console: "Console", bar_width: int, in_bytes: bool, in_percent: bool, with_time_left: bool) -> "Progress":
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    count: ProgressColumn = TaskProgressColumn() if in_percent else MofNCompleteColumn()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width),
        DownloadColumn() if in_bytes else count,
        TransferSpeedColumn() if in_bytes else TextColumn("{task.fields[rate]}"),
        *([TimeRemainingColumn(compact=True)] if with_time_left else []),
        TextColumn("{task.fields[note]}"),
    )
    shown = console.is_terminal and not console.is_jupyter
    return Progress(*columns, console=console, disable=not shown, transient=True, redirect_stderr=False)
