"""dmuh cache."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from dmuh.cli.console import say, say_json, warn
from dmuh.cli.options import Json, flag
from dmuh.cli.stopping import stoppable

_DIGEST = re.compile("[0-9a-f]{24}")
_NETWORK = re.compile(r"\.?[a-z0-9-]+-[0-9.]+\.safetensors(\.dmuh-[a-z0-9_]{8}\.safetensors)?")
_ROWS = re.compile(r"(rows|done)\.bin|\.lock|\.(rows|done)\.bin\.dmuh-[a-z0-9_]{8}\.bin")


@stoppable()
def cache(
    clear: Annotated[bool, flag("--clear", help="Remove everything that dmuh put there.")] = False,
    as_json: Json = False,
) -> None:
    """Show where dmuh keeps features and networks that it computed, and how much space they take; or remove them.

    Example: dmuh cache --clear

    They are computed again when they are needed. The environment variable DMUH_CACHE names another folder. Features
    that dmuh open computed are beside the images instead, in a folder .dmuh.
    """
    from dmuh.machine import cache_folder

    folder = cache_folder()
    features, networks = folder / "activations", folder / "networks"
    sizes = [path.lstat().st_blocks * 512 for path in (*_written_files(features), *_written_networks(networks))]
    result = {"cache": str(folder), "files": len(sizes), "bytes": sum(sizes), "cleared": clear}
    left = _clear(features) + _clear_networks(networks) if clear else []
    if left:
        warn(f"left because dmuh did not write it: {', '.join(map(str, left[:5]))}{', …' * (len(left) > 5)}")
    if as_json:
        say_json(result)
    else:
        say(f"{folder}: {sum(sizes) / 1e6:,.0f} MB" + (", removed" if clear else ""))


def _written_folders(features: Path) -> list[Path]:
    """Return the folders that dmuh makes in its cache, the innermost first: DIGEST/plain, DIGEST/mirrored, DIGEST."""
    found = [folder for folder in features.glob("*") if _DIGEST.fullmatch(folder.name) and _is_folder(folder)]
    inner = [folder / name for folder in found for name in ("plain", "mirrored")]
    return [folder for folder in inner if _is_folder(folder)] + found


def _written_files(features: Path) -> list[Path]:
    """Return the files that dmuh writes in these folders, also those that it was writing when it was killed."""
    folders = [folder for folder in _written_folders(features) if folder.name in ("plain", "mirrored")]
    return [file for folder in folders for file in folder.iterdir() if _ROWS.fullmatch(file.name) and file.is_file()]


def _written_networks(networks: Path) -> list[Path]:
    """Return the files of networks that dmuh exported to its cache."""
    found = networks.glob("*") if _is_folder(networks) else ()
    return [file for file in found if _NETWORK.fullmatch(file.name) and file.is_file() and not file.is_symlink()]


def _clear_networks(networks: Path) -> list[Path]:
    """Remove the networks that dmuh exported to its cache; return what else is there."""
    for file in _written_networks(networks):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        networks.rmdir()
    return sorted(networks.glob("*"))


def _clear(features: Path) -> list[Path]:
    """Remove what dmuh made in its cache; return what else is there."""
    for file in _written_files(features):
        file.unlink(missing_ok=True)
    for folder in [*_written_folders(features), features]:
        with suppress(OSError):  # something else is in it, or it does not exist
            folder.rmdir()
    return sorted(path for path in features.rglob("*") if path.is_symlink() or not path.is_dir())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
