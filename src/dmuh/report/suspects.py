"""Suspects as a page: a picture of each image, its labels, those that were suggested, and how sure that is."""

import html
from collections.abc import Sequence
from pathlib import Path

from dmuh.catalogue.paths import displayed
from dmuh.errors import DataError
from dmuh.files import write_text
from dmuh.report.markup import page, section
from dmuh.report.thumbnails import data_uri
from dmuh.review import Suspect

_SIDE = 128
_CELL = (
    f"display:inline-block;width:{_SIDE + 32}px;margin:0 8px 16px 0;vertical-align:top;font-size:13px;"
    "overflow-wrap:anywhere"
)


def write_suspects_page(file: Path, suspects: Sequence[Suspect]) -> None:
    """Write a page of suspects to a file that is not there yet; it needs no other file."""
    cells = "".join(map(_cell, suspects)) or "<p>There are none.</p>"
    about = f"{len(suspects):,} images, those first whose labels are most probably wrong."
    try:
        write_text(file, page("Labels to review", [section("Labels to review", about, cells)]), replace=False)
    except FileExistsError as error:
        raise DataError(f"{file} exists already: nothing is replaced, so give another --page") from error


def _cell(suspect: Suspect) -> str:
    name = html.escape(displayed(Path(suspect.path).name))
    labels, suggested = (html.escape(", ".join(names) or "no label") for names in (suspect.labels, suspect.suggested))
    picture = data_uri(suspect.path, _SIDE) if Path(suspect.path).is_file() else ""
    image = f'<img src="{picture}" alt="{name}" width="{_SIDE}" height="{_SIDE}"><br>' if picture else ""
    return (
        f'<div style="{_CELL}">{image}<s>{labels}</s> → <b>{suggested}</b><br>'
        f"{html.escape(suspect.in_words)} ({suspect.probability:.2f})<br><small>{name}</small></div>\n"
    )
