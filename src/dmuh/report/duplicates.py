"""Duplicates as a page, as a table and as JSON."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from dmuh.duplicates import Group, Match, Member, in_bytes
from dmuh.errors import ImageError
from dmuh.files import write_text
from dmuh.images import upright
from dmuh.report.markup import page, refuse_foreign_page

_MOST_GROUPS, _MOST_IMAGES = 200, 11  # that a page shows, and images beside the best of each
_SIDE = 220  # pixels of a small picture
_COLUMNS = ("group", "path", "kind", "likeness", "width", "height", "bytes", "modified", "reason")
_MATCH_COLUMNS = ("path", "other", "kind", "likeness")

_STYLE = """<style>
.group { border-top: 1px solid var(--line); padding-top: 1rem; margin-top: 1.6rem; }
.group h2 { font-size: 1.05rem; overflow-wrap: anywhere; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .8rem; }
.picture { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; overflow: hidden; }
.picture.best { border: 2px solid var(--right); }
.picture img { display: block; width: 100%; height: 10rem; object-fit: contain; background: var(--paper); }
.picture figcaption { padding: .5rem .7rem .6rem; line-height: 1.35; }
.picture b { display: block; color: var(--soft); }
.picture.best b { color: var(--right); }
.picture span { display: block; overflow-wrap: anywhere; }
.picture small { color: var(--soft); }
</style>
"""


def as_json(root: Path, n_images: int, groups: Sequence[Group]) -> dict[str, Any]:
    """Return groups as plain values, with what they come to."""
    return {
        "folder": str(root),
        "images": n_images,
        "duplicates": sum(len(group.others) for group in groups),
        "bytes": _bytes(groups),
        "groups": [
            {"best": str(group.best.path), "reason": group.reason, "images": [_values(each) for each in group.members]}
            for group in groups
        ],
    }


def write_csv(file: Path, groups: Sequence[Group]) -> None:
    """Write groups as a table: one line per image, the best of each group first."""
    rows = [
        {"group": number, "reason": group.reason if each is group.best else "", **_values(each)}
        for number, group in enumerate(groups, start=1)
        for each in group.members
    ]
    _write_table(file, _COLUMNS, rows)


def write_matches_csv(file: Path, matches: Sequence[Match]) -> None:
    """Write images that are in another folder too as a table."""
    _write_table(file, _MATCH_COLUMNS, [match_values(match) for match in matches])


def match_values(match: Match) -> dict[str, Any]:
    """Return a match as plain values."""
    return {"path": str(match.path), "other": str(match.other), "kind": match.kind,
            "likeness": round(match.likeness, 4)}  # fmt: skip


def write_page(file: Path, root: Path, n_images: int, groups: Sequence[Group]) -> None:
    """Write groups as one HTML file that needs nothing else."""
    refuse_foreign_page(file)
    n_others = sum(len(group.others) for group in groups)
    facts = {
        "images": f"{n_images:,}",
        "groups": f"{len(groups):,}",
        "duplicates": f"{n_others:,}",
        "they take": in_bytes(_bytes(groups)),
    }
    text = "The image in the blue frame is the best of its group, for the reason given; the others are the same file, "
    sections = [_header(f"Duplicates in {root}", text + "have the same pixels, or are near it.", facts)]
    for number, group in enumerate(groups[:_MOST_GROUPS], start=1):
        shown = group.others[:_MOST_IMAGES]
        pictures = [_picture(root / group.best.path, "best: " + group.reason, _size(group.best), group.best.path, True)]
        pictures += [_picture(root / each.path, _likeness(each), _size(each), each.path, False) for each in shown]
        more = len(group.others) - len(shown)
        beyond = f"<p>and {more:,} more</p>" if more else ""
        title = f"{number}. {html.escape(_text(group.best.path))}"
        body = f'<div class="pictures">{"".join(pictures)}</div>'
        sections.append(f'<div class="group"><h2>{title}</h2>{body}{beyond}</div>\n')
    if len(groups) > _MOST_GROUPS:
        sections.append(f"<p>The other {len(groups) - _MOST_GROUPS:,} groups are in the CSV file and the JSON.</p>")
    write_text(file, page(f"Duplicates in {_text(root)}", sections))


def write_matches_page(file: Path, root: Path, other: Path, n_images: int, matches: Sequence[Match]) -> None:
    """Write images that are in another folder too as one HTML file that needs nothing else."""
    refuse_foreign_page(file)
    facts = {"images": f"{n_images:,}", "in the other folder": f"{len(matches):,}"}
    sections = [_header(f"Images of {root} that are in {other}", "Each image, and the most alike of the other folder.",
                        facts)]  # fmt: skip
    for match in matches[:_MOST_GROUPS]:
        pictures = _picture(root / match.path, "image", "", match.path, False)
        pictures += _picture(other / match.other, _words(match.kind, match.likeness), "", match.other, False)
        sections.append(f'<div class="group"><div class="pictures">{pictures}</div></div>\n')
    if len(matches) > _MOST_GROUPS:
        sections.append(f"<p>The other {len(matches) - _MOST_GROUPS:,} are in the CSV file and the JSON.</p>")
    write_text(file, page(f"Images of {_text(root)} in {_text(other)}", sections))


def _write_table(file: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows({**row, "path": _text(row["path"])} for row in rows)
    write_text(file, text.getvalue())


def _values(member: Member) -> dict[str, Any]:
    about = member.about
    return {
        "path": str(member.path),
        "kind": member.kind,
        "likeness": round(member.likeness, 4),
        "width": about.width,
        "height": about.height,
        "bytes": about.n_bytes,
        "modified": datetime.fromtimestamp(about.stamp / 1e9, UTC).isoformat(timespec="seconds"),
    }


def _bytes(groups: Sequence[Group]) -> int:
    return sum(member.about.n_bytes for group in groups for member in group.others)


def _header(title: str, text: str, facts: dict[str, str]) -> str:
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts.items())
    return f"{_STYLE}<header><h1>{html.escape(_text(title))}</h1><p>{html.escape(text)}</p><dl>{items}</dl></header>\n"


def _picture(file: Path, word: str, size: str, path: Path, best: bool) -> str:
    name = html.escape(_text(path))
    about = f"<small>{html.escape(size)}</small>" if size else ""
    return (
        f'<figure class="picture{" best" * best}"><img src="{_small(file)}" alt="{name}" loading="lazy">'
        f"<figcaption><b>{html.escape(word)}</b><span>{name}</span>{about}</figcaption></figure>"
    )


def _small(file: Path) -> str:
    """Return a small picture of an image as a data: address; an unreadable one becomes a grey square."""
    try:
        image = upright(file, _SIDE)
        image.thumbnail((_SIDE, _SIDE))
    except ImageError:
        image = Image.new("RGB", (_SIDE, _SIDE), "grey")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _likeness(member: Member) -> str:
    return _words(member.kind, member.likeness)


def _words(kind: str, likeness: float) -> str:
    return f"near, likeness {likeness:.2f}" if kind == "near" else kind


def _size(member: Member) -> str:
    about = member.about
    return f"{about.width:,} × {about.height:,}, {in_bytes(about.n_bytes)}"


def _text(name: Path | str) -> str:
    """Return a name as text that can be written; bytes that are no UTF-8 become question marks."""
    return str(name).encode("utf-8", "replace").decode()
