"""dmuh list."""

from typing import Annotated, Any

import typer

from dmuh.cli.console import Json, needs_torch, say_json, say_table


def list_names(
    methods: Annotated[bool, typer.Option("--methods", help="Only the methods.")] = False,
    datasets: Annotated[bool, typer.Option("--datasets", help="Only the data sets.")] = False,
    protocols: Annotated[bool, typer.Option("--protocols", help="Only the protocols.")] = False,
    backbones: Annotated[bool, typer.Option("--backbones", help="Only the backbones.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Only the settings, for --set key=value.")] = False,
    as_json: Json = False,
) -> None:
    """List methods, data sets, protocols, backbones and settings."""
    from dmuh.config import SECTIONS, describe
    from dmuh.datasets import DATASETS
    from dmuh.protocols import PROTOCOLS

    with needs_torch("listing methods and backbones"):
        from dmuh.backbones import BACKBONES
        from dmuh.methods import METHODS

    groups = {**SECTIONS, **{f"method {name}": method.Options for name, method in METHODS.items()}}
    tables: dict[str, list[dict[str, Any]]] = {
        "methods": [{"name": name, "about": m.title, "paper": m.paper} for name, m in METHODS.items()],
        "datasets": [{"name": name, "about": d.about, "protocol": d.protocol} for name, d in DATASETS.items()],
        "protocols": [{"name": name, "about": p.about} for name, p in PROTOCOLS.items()],
        "backbones": [{"name": name, "about": b.about} for name, b in BACKBONES.items()],
        "settings": [
            {"name": name, "default": default, "about": about, "section": section}
            for section, cls in groups.items()
            for name, default, about in describe(cls)
        ],
    }
    asked = [
        name for name, wanted in zip(tables, (methods, datasets, protocols, backbones, settings), strict=True) if wanted
    ]
    shown = {name: tables[name] for name in asked or [name for name in tables if name != "settings" or as_json]}
    if as_json:
        say_json(shown)
        return
    for name, rows in shown.items():
        say_table(name, [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows])
