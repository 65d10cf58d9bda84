"""dmuh list."""

from collections.abc import Callable
from typing import Annotated, Any

from dmuh.cli.console import say_json, say_table
from dmuh.cli.options import Json, flag
from dmuh.cli.stopping import stoppable
from dmuh.errors import needs_torch

Row = dict[str, Any]


@stoppable()
def list_names(
    methods: Annotated[bool, flag("--methods", help="Only the methods, for --method.")] = False,
    datasets: Annotated[bool, flag("--datasets", help="Only the data sets, for --dataset.")] = False,
    protocols: Annotated[bool, flag("--protocols", help="Only the protocols, for --set protocol=NAME.")] = False,
    backbones: Annotated[bool, flag("--backbones", help="Only the backbones, for --backbone.")] = False,
    text_encoders: Annotated[
        bool, flag("--text-encoders", help="Only the encoders of texts, for --set text_encoder=NAME.")
    ] = False,
    settings: Annotated[bool, flag("--settings", help="Only the settings, for --set KEY=VALUE.")] = False,
    as_json: Json = False,
) -> None:
    """List methods, data sets, protocols, backbones, encoders of texts and settings.

    Example: dmuh list --settings
    """
    wanted = (methods, datasets, protocols, backbones, text_encoders, settings)
    asked = [name for name, want in zip(_TABLES, wanted, strict=True) if want]
    chosen = {name: _TABLES[name]() for name in asked or [name for name in _TABLES if name != "settings" or as_json]}
    if as_json:
        say_json(chosen)
        return
    for name, rows in chosen.items():
        texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
        if name == "settings":
            _say_settings(texts)
        else:
            say_table(name, texts, wrap=True)


def _methods() -> list[Row]:
    with needs_torch("listing methods and backbones"):
        from dmuh.methods import METHODS

    return [
        {"name": name, "kind": m.kind, "year": m.year, "about": m.title, "paper": m.paper}
        for name, m in METHODS.items()
    ]


def _datasets() -> list[Row]:
    from dmuh.datasets import DATASETS

    return [{"name": name, "about": d.about, "protocol": d.protocol} for name, d in DATASETS.items()]


def _protocols() -> list[Row]:
    from dmuh.protocols import PROTOCOLS

    return [{"name": name, "about": p.about} for name, p in PROTOCOLS.items()]


def _backbones() -> list[Row]:
    with needs_torch("listing methods and backbones"):
        from dmuh.backbones import BACKBONES, FAMILIES

    return [{"name": name, "about": b.about} for name, b in {**BACKBONES, **FAMILIES}.items()]


def _text_encoders() -> list[Row]:
    from dmuh.texts import TEXT_ENCODERS

    return [{"name": name, "about": e.about} for name, e in TEXT_ENCODERS.items()]


def _settings() -> list[Row]:
    from dmuh.config import SECTIONS, describe

    with needs_torch("listing methods and backbones"):
        from dmuh.methods import METHODS

    groups = {**SECTIONS, **{f"method {name}": method.Options for name, method in METHODS.items()}}
    return [
        {"name": name, "default": default, "about": about, "section": section}
        for section, cls in groups.items()
        for name, default, about in describe(cls)
    ]


# Each is made only when it is asked for: methods take seconds to import, and need torch, which the others do not.
_TABLES: dict[str, Callable[[], list[Row]]] = {
    "methods": _methods,
    "datasets": _datasets,
    "protocols": _protocols,
    "backbones": _backbones,
    "text_encoders": _text_encoders,
    "settings": _settings,
}


def _say_settings(rows: list[dict[str, str]]) -> None:
    """Print a table for each section."""
    for section in dict.fromkeys(row["section"] for row in rows):
        part = [{key: row[key] for key in ("name", "default", "about")} for row in rows if row["section"] == section]
        say_table(f"settings: {section}", part, wrap=True)
