"""dmuh list and dmuh cache."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from dmuh.cli.console import Json, say, say_json, say_table, warn
from dmuh.errors import needs_torch

_DIGEST = re.compile("[0-9a-f]{24}")
_ROWS = re.compile(r"(rows|done)\.bin|\.lock|\.(rows|done)\.bin\.dmuh-[a-z0-9_]{8}\.bin")


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
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything that dmuh put there.")] = False,
    as_json: Json = False,
) -> None:
    """Show where the features of frozen networks are kept and how much they take, or remove them.

    They are computed again when they are needed. The environment variable DMUH_CACHE names another folder.
    """
    from dmuh.machine import cache_folder

    kept = cache_folder() / "activations"
    sizes = [path.lstat().st_blocks * 512 for path in _own_files(kept)]
    result = {"cache": str(kept.parent), "files": len(sizes), "bytes": sum(sizes), "cleared": clear}
    left = _clear(kept) if clear else []
    if left:
        warn(f"left because dmuh did not write it: {', '.join(map(str, left[:5]))}{', …' * (len(left) > 5)}")
    if as_json:
        say_json(result)
    else:
        say(f"{kept.parent}: {sum(sizes) / 1e6:,.0f} MB" + (", removed" if clear else ""))


def _own_folders(kept: Path) -> list[Path]:
    """Return the folders that dmuh makes in its cache, the innermost first: DIGEST/plain, DIGEST/mirrored, DIGEST."""
    found = [folder for folder in kept.glob("*") if _DIGEST.fullmatch(folder.name) and _is_folder(folder)]
    inner = [folder / name for folder in found for name in ("plain", "mirrored")]
    return [folder for folder in inner if _is_folder(folder)] + found


def _own_files(kept: Path) -> list[Path]:
    """Return the files that dmuh writes in these folders, also those that it was writing when it was killed."""
    folders = [folder for folder in _own_folders(kept) if folder.name in ("plain", "mirrored")]
    return [file for folder in folders for file in folder.iterdir() if _ROWS.fullmatch(file.name) and file.is_file()]


def _clear(kept: Path) -> list[Path]:
    """Remove what dmuh made in its cache; return what else is there."""
    for file in _own_files(kept):
        file.unlink(missing_ok=True)
    for folder in [*_own_folders(kept), kept]:
        with suppress(OSError):  # something else is in it, or it does not exist
            folder.rmdir()
    return sorted(path for path in kept.rglob("*") if path.is_symlink() or not path.is_dir())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
