"""dmuh list."""

from typing import Annotated, Any

from dmuh.cli.console import say_json, say_table
from dmuh.cli.options import Json, flag
from dmuh.cli.stopping import stoppable
from dmuh.errors import needs_torch


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
    tables = _tables()
    wanted = (methods, datasets, protocols, backbones, text_encoders, settings)
    asked = [name for name, want in zip(tables, wanted, strict=True) if want]
    chosen = {name: tables[name] for name in asked or [name for name in tables if name != "settings" or as_json]}
    if as_json:
        say_json(chosen)
        return
    for name, rows in chosen.items():
        texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
        if name == "settings":
            _say_settings(texts)
        else:
            say_table(name, texts, wrap=True)


def _tables() -> dict[str, list[dict[str, Any]]]:
    """Return what there is to choose from: a row for each name, by the kind of thing."""
    from dmuh.config import SECTIONS, describe
    from dmuh.datasets import DATASETS
    from dmuh.protocols import PROTOCOLS
    from dmuh.texts import TEXT_ENCODERS

    with needs_torch("listing methods and backbones"):
        from dmuh.backbones import BACKBONES, FAMILIES
        from dmuh.methods import METHODS

    groups = {**SECTIONS, **{f"method {name}": method.Options for name, method in METHODS.items()}}
    return {
        "methods": [
            {"name": name, "kind": m.kind, "year": m.year, "about": m.title, "paper": m.paper}
            for name, m in METHODS.items()
        ],
        "datasets": [{"name": name, "about": d.about, "protocol": d.protocol} for name, d in DATASETS.items()],
        "protocols": [{"name": name, "about": p.about} for name, p in PROTOCOLS.items()],
        "backbones": [{"name": name, "about": b.about} for name, b in {**BACKBONES, **FAMILIES}.items()],
        "text_encoders": [{"name": name, "about": e.about} for name, e in TEXT_ENCODERS.items()],
        "settings": [
            {"name": name, "default": default, "about": about, "section": section}
            for section, cls in groups.items()
            for name, default, about in describe(cls)
        ],
    }


def _say_settings(rows: list[dict[str, str]]) -> None:
    """Print a table for each section."""
    for section in dict.fromkeys(row["section"] for row in rows):
        part = [{key: row[key] for key in ("name", "default", "about")} for row in rows if row["section"] == section]
        say_table(f"settings: {section}", part, wrap=True)
