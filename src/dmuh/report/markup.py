"""The pieces of a page: one HTML file that needs nothing else."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dmuh.errors import DataError
from dmuh.report.figures import Drawing

_OURS = '<meta name="generator" content="dmuh">'
_HEAD = 1000  # characters of a page within which that stands

# A link may lead to a part that is switched off or to what is folded: show it. Without scripts all else works.
_SCRIPT = """<script>
if (matchMedia("(max-width: 70rem)").matches) document.querySelector(".contents").open = false;
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const part = target.closest("[data-part]"), fold = target.closest("details");
  if (part && !part.offsetParent) document.getElementById("show-" + part.dataset.part).checked = true;
  if (fold) fold.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
</script>
"""


@dataclass(frozen=True)
class Section:
    """A titled part of a page: a sentence, and what it is about; `folded` it shows its title until it is opened."""

    title: str
    text: str
    content: str
    anchor: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Drawn:
    """A figure of a report, with its title, a sentence about it and what stands beside it.

    `table` is the table that stands beside it in Markdown, which is kept as a file. `of_the_paper` says that the paper
    has such a figure.
    """

    name: str
    title: str
    text: str
    drawing: Drawing
    beside: str = ""
    table: str = ""
    of_the_paper: bool = False


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
    return _section(Section(title, text, content), "h2")


def switched(parts: Mapping[str, Sequence[Section]]) -> str:
    """Return parts by name with their contents, and, where there are several, a switch that shows one or all."""
    if not parts:
        return ""
    groups, bodies = [], []
    for number, (name, sections) in enumerate(parts.items()):
        titles = "".join(f'<li><a href="#{each.anchor}">{html.escape(each.title)}</a></li>' for each in sections)
        groups.append(f'<div data-part="{number}"><h3>{html.escape(name)}</h3><ol>{titles}</ol></div>\n')
        body = "".join(_section(each, "h3") for each in sections)
        bodies.append(
            f'<article data-part="{number}" id="{anchor_of(name)}"><h2>{html.escape(name)}</h2>\n{body}</article>\n'
        )
    return (
        f'<div class="report">\n<nav>\n{_switch(list(parts)) if len(parts) > 1 else ""}'
        f'<details class="contents" open><summary>Contents</summary>\n{"".join(groups)}</details>\n</nav>\n'
        f"<div>\n{''.join(bodies)}</div>\n</div>\n{_SCRIPT}"
    )


def _switch(names: Sequence[str]) -> str:
    """Return the buttons of the switch and the rules by which they hide what is not chosen."""
    buttons = "".join(
        f'<label><input type="radio" name="part" id="show-{value}"{" checked" * (number == 0)}>'
        f"{html.escape(name)}</label>\n"
        for number, (value, name) in enumerate([*((str(number), name) for number, name in enumerate(names)),
                                                ("all", "all")])
    )  # fmt: skip
    rules = "".join(
        f'.report:has(#show-{number}:checked) [data-part]:not([data-part="{number}"]) {{ display: none; }}\n'
        for number in range(len(names))
    )
    return (
        f"<style>\n@media screen {{\n{rules}}}\n</style>\n<fieldset><legend>Data set</legend>\n{buttons}</fieldset>\n"
    )


def _section(what: Section, heading: str) -> str:
    place = f' id="{what.anchor}"' if what.anchor else ""
    title = f"<{heading}>{html.escape(what.title)}</{heading}>"
    body = f'<p>{html.escape(what.text)}</p><div class="content">{what.content}</div>'
    if what.folded:
        return f'<details class="folded"{place}><summary>{title}</summary>{body}</details>\n'
    return f"<section{place}>{title}{body}</section>\n"


def anchor_of(*names: str) -> str:
    """Return names as one that links can lead to."""
    return re.sub(r"[^\w.-]+", "-", "-".join(names))


def figure(drawing: Drawing) -> str:
    """Return a figure that follows the reader's choice of light or dark."""

    def uri(svg: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{uri(drawing.dark)}">'
        f'<img class="figure" src="{uri(drawing.light)}" alt="{html.escape(drawing.alt)}"></picture>'
    )
