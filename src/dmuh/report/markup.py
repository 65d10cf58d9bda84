"""The pieces of a page: one HTML file that needs nothing else."""

import base64
import html
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from dmuh.errors import DataError
from dmuh.report.figures import Drawing

_OURS = '<meta name="generator" content="dmuh">'
_HEAD = 1000  # characters of a page within which that stands


def refuse_foreign_page(file: Path) -> None:
    """Raise if there is a page that dmuh did not write, so that it is not replaced."""
    if file.exists() and _OURS.encode() not in file.read_bytes()[:_HEAD]:
        raise DataError(f"{file} was not written by this dmuh: nothing is replaced, so choose another --out")


def page(title: str, sections: Sequence[str]) -> str:
    """Return a whole page."""
    style = resources.files("dmuh.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" '
        f'content="light dark">\n{_OURS}\n<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n'
        f"<main>\n{''.join(sections)}</main>\n</html>\n"
    )


def section(title: str, text: str, content: str) -> str:
    """Return a titled section with a sentence and what it is about."""
    return (
        f"<section><h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>"
        f'<div class="content">{content}</div></section>\n'
    )


def figure(drawing: Drawing) -> str:
    """Return a figure that follows the reader's choice of light or dark."""

    def uri(svg: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{uri(drawing.dark)}">'
        f'<img class="figure" src="{uri(drawing.light)}" alt="{html.escape(drawing.alt)}"></picture>'
    )
