"""What the commands print: results, tables, remarks, and how far a long job is."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dmuh.progress import Bar
from dmuh.progress import counting_bar as counting_bar

if TYPE_CHECKING:
    from dmuh.bench import State as GridState

_NARROWEST = 16  # columns of a terminal that a wrapped column of a table has at least


def say(text: str) -> None:
    """Print a line of the result."""
    print(text, flush=True)


def say_json(value: Any) -> None:
    """Print the result as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def warn(text: str) -> None:
    """Print a remark beside the result."""
    print(f"dmuh: {text}", file=sys.stderr)


def say_table(title: str, rows: Sequence[dict[str, str]], empty: str = "none", *, wrap: bool = False) -> None:
    """Print a titled table; columns are as wide as they need to be.

    With `wrap` long texts are broken to fit a terminal; a pipe gets every row in one line all the same.
    """
    print(title)
    if not rows:
        print(f"  {empty}\n")
        return
    columns = list(rows[0])
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
    narrow = wrap and sys.stdout is not None and sys.stdout.isatty()  # there is none where the output is closed
    if narrow:
        widths = _narrowed(widths, shutil.get_terminal_size().columns - 2 * len(columns))
    for row in ({column: column for column in columns}, *rows):
        cells = [
            textwrap.wrap(row[column], widths[column], break_on_hyphens=False) or [""] if narrow else [row[column]]
            for column in columns
        ]
        for n in range(max(map(len, cells))):
            parts = [
                (cell[n] if n < len(cell) else "").ljust(widths[column])
                for column, cell in zip(columns, cells, strict=True)
            ]
            print("  " + "  ".join(parts).rstrip())
    print()


def _narrowed(widths: dict[str, int], most: int) -> dict[str, int]:
    """Return widths of columns that are `most` together: the widest ones give way."""
    narrowed = dict(widths)
    while sum(narrowed.values()) > most:
        widest = max(narrowed, key=lambda column: narrowed[column])
        if narrowed[widest] <= _NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed


@contextmanager
def grid_bar() -> Iterator[Callable[["GridState"], None]]:
    """Show how many runs of a grid are done, which are being made, and the time left."""
    with Bar("runs", with_time_left=False) as bar:

        def report(state: "GridState") -> None:
            parts = [f"{round(state.seconds_left / 60)} min left"]
            if state.failed:
                parts.insert(0, f"{state.failed} failed")
            parts += [f"{name} {done}/{epochs}" for name, done, epochs in state.running]
            bar.set(state.done, state.total, *parts)

        yield report


@contextmanager
def download_bar() -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar in bytes once there are some; yields what is to be told how many have come, and of how many."""
    bar = Bar("downloading", in_bytes=True)

    def report(done: int, total: int | None) -> None:
        bar.start()
        bar.set(done, total)

    try:
        yield report
    finally:
        bar.stop()
