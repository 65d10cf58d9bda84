"""dmuh list and dmuh cache."""

from typing import Annotated, Any

import typer

from dmuh.cli.console import Json, say, say_json, say_table
from dmuh.errors import needs_torch


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
        from dmuh.backbones import BACKBONES, FAMILIES
        from dmuh.methods import METHODS

    groups = {**SECTIONS, **{f"method {name}": method.Options for name, method in METHODS.items()}}
    tables: dict[str, list[dict[str, Any]]] = {
        "methods": [
            {"name": name, "kind": m.kind, "year": m.year, "about": m.title, "paper": m.paper}
            for name, m in METHODS.items()
        ],
        "datasets": [{"name": name, "about": d.about, "protocol": d.protocol} for name, d in DATASETS.items()],
        "protocols": [{"name": name, "about": p.about} for name, p in PROTOCOLS.items()],
        "backbones": [{"name": name, "about": b.about} for name, b in {**BACKBONES, **FAMILIES}.items()],
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


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything in it.")] = False,
    as_json: Json = False,
) -> None:
    """Show where the features of frozen networks are kept and how much they take, or remove them.

    They are computed again when they are needed. The environment variable DMUH_CACHE names another folder.
    """
    import shutil

    from dmuh.machine import cache_folder

    kept = cache_folder() / "activations"  # whatever else is in that folder is not ours
    sizes = [path.stat().st_blocks * 512 for path in kept.rglob("*") if path.is_file()]
    result = {"cache": str(kept.parent), "files": len(sizes), "bytes": sum(sizes), "cleared": clear}
    if clear:
        shutil.rmtree(kept, ignore_errors=True)
    if as_json:
        say_json(result)
    else:
        say(f"{kept.parent}: {sum(sizes) / 1e6:,.0f} MB" + (", removed" if clear else ""))
