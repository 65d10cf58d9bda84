"""dmuh report."""

from pathlib import Path
from typing import Annotated

import typer

from dmuh.cli.console import say, say_json
from dmuh.cli.options import Json
from dmuh.cli.stopping import stoppable


@stoppable()
def report(
    benches: Annotated[list[Path], typer.Argument(metavar="BENCHES", help="Folders made by `dmuh bench`.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the tables, the figures and the page.")
    ],
    title: Annotated[str, typer.Option(metavar="TEXT", help="Title of the page.")] = "",
    as_json: Json = False,
) -> None:
    """Write the tables and figures of benches, as files and as one page.

    Example: dmuh report bench/digits --out results/digits, then open results/digits/index.html

    Tables are Markdown, LaTeX and CSV; figures are SVG, light and dark, and PNG.
    """
    from dmuh.report.experiment import write_report

    write_report(benches, out, title)
    page = out / "index.html"
    say_json({"page": str(page)}) if as_json else say(f"the page is at {page.absolute()}")
