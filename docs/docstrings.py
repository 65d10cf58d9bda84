"""How docstrings become pages: lists of what goes in and out become lists, examples become code."""

import re
from typing import Any

from griffe import Extension, Object

ENTRY = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown, paragraph by paragraph."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if ">>> " in text:  # an example right below the sentence that introduces it
        at = next(n for n, line in enumerate(lines) if line.lstrip().startswith(">>>"))
        return "\n".join(lines[:at]) + "\n\n" + _paragraph("\n".join(lines[at:]))
    return _list(lines) if ENTRY.fullmatch(lines[0]) else text


def _list(lines: list[str]) -> str:
    """Return lines such as `bits    uint8 (N, width)` as a list; further lines of an entry are indented."""
    out: list[str] = []
    for line in lines:
        entry = ENTRY.fullmatch(line)
        if entry:
            out.append(f"- **{entry[1]}**: {entry[2]}")
        else:
            out[-1] += f" {line.strip()}"
    return "\n".join(out)


class Docstrings(Extension):
    """Rewrites every docstring that is collected."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
