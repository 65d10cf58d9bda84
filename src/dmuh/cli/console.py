"""What the commands share: printing, progress bars and the options of data sets."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.progress import Bar
from dmuh.progress import counting_bar as counting_bar

if TYPE_CHECKING:
    from dmuh.bench import State as GridState

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DatasetName = Annotated[str | None, typer.Option("--dataset", help="Name of the data set, see `dmuh list`.")]
PathFormat = Annotated[str | None, typer.Option(help="csv: builds the path from columns, images/{image_id}.jpg")]
PathColumn = Annotated[str | None, typer.Option(help="csv: column with the image path.")]
LabelColumn = Annotated[str | None, typer.Option(help="csv: column with the labels.")]
LabelSeparator = Annotated[str | None, typer.Option(help="csv: what separates labels in that column; by default ;")]
OnBadImage = Annotated[str | None, typer.Option(help="What an unreadable image does: fail (the default) or skip.")]


def say(text: str) -> None:
    """Print a line of the result."""
    print(text, flush=True)


def say_json(value: Any) -> None:
    """Print the result as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def say_table(title: str, rows: Sequence[dict[str, str]], empty: str = "none") -> None:
    """Print a titled table; columns are as wide as they need to be, and a pipe gets them whole."""
    print(title)
    if not rows:
        print(f"  {empty}\n")
        return
    columns = list(rows[0])
    widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns]
    for line in ({column: column for column in columns}, *rows):
        cells = (line[column].ljust(width) for column, width in zip(columns, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())
    print()


@contextmanager
def grid_bar() -> Iterator[Callable[["GridState"], None]]:
    """Show how many runs of a grid are done, which are being made, and the time left."""
    with Bar("runs", with_time_left=False) as bar:

        def report(state: "GridState") -> None:
            parts = [f"{round(state.seconds_left / 60)} min left"]
            parts += [f"{name} {done}/{epochs}" for name, done, epochs in state.running]
            if state.failed:
                parts.insert(0, f"{state.failed} failed")
            bar.set(state.done, state.total, "  ".join(parts))

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


def warn(text: str) -> None:
    """Print a remark beside the result."""
    print(f"dmuh: {text}", file=sys.stderr)


def given(**flags: Any) -> dict[str, Any]:
    """Return the flags that were given."""
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value is not None
    }
