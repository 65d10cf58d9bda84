"""What dmuh needs to know of the machine: its cores, and where to keep what can be computed again."""

import os
from pathlib import Path


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Return where what can be computed again is kept: $DMUH_CACHE, or dmuh in the user's cache folder."""
    own = os.environ.get("DMUH_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmuh"
