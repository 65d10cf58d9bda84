"""Progress bars: by rich on a terminal, as HTML in a notebook, and silent everywhere else.

A job that takes long is handed something that opens a bar: `counting_bar` shows one, `uncounted` does not.
"""

import html
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# Takes what is done and of how many, None if that is not known; gives what is told how many more are done.
Counting = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]

_SECONDS = 0.2  # between two pictures of a bar in a notebook


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
    with_time_left  show the time left; a job that estimates it better says so in the note
    """

    def __init__(
        self, what: str, total: int | None = None, *, in_bytes: bool = False, with_time_left: bool = True
    ) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        self._bar = _rich_bar(console, in_bytes, with_time_left)
        self._task = self._bar.add_task(what, total=total, rate="", note="")
        self._notebook = _NotebookBar(self._bar) if console.is_jupyter else None

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
        self._bar.start()

    def stop(self) -> None:
        """Take the bar away, if it is shown."""
        self._bar.stop()
        if self._notebook is not None:
            self._notebook.clear()

    def advance(self, n: int, note: str = "") -> None:
        """Say that `n` more are done."""
        speed = self._bar.tasks[0].speed
        self._update(advance=n, rate="" if speed is None else f"{speed:,.0f}/s", note=note)

    def set(self, done: int, total: int | None, note: str = "") -> None:
        """Say how many are done in all, and of how many."""
        self._update(completed=done, total=total, note=note)

    def _update(self, **values: Any) -> None:
        self._bar.update(self._task, **values)
        if self._notebook is not None:
            self._notebook.draw()


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


def _rich_bar(console: "Console", in_bytes: bool, with_time_left: bool) -> "Progress":
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TransferSpeedColumn() if in_bytes else TextColumn("{task.fields[rate]}"),
        *([TimeRemainingColumn()] if with_time_left else []),
        TextColumn("{task.fields[note]}"),
    )
    shown = console.is_terminal and not console.is_jupyter
    return Progress(*columns, console=console, disable=not shown, transient=True)
