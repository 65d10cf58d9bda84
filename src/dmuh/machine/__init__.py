"""What dmuh needs to know of the machine: cores, processes beside this one, where to keep what can be made again."""

import ctypes
import os
import platform
import tempfile
from pathlib import Path

from dmuh.errors import ConfigError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def may_have_gpu() -> bool:
    """Return whether there is any device that a GPU's driver makes; torch, which knows for sure, takes seconds."""
    drivers = ("nvidia*", "nvhost*", "nvgpu*", "nvmap", "kfd", "dxg")  # NVIDIA's, also on Jetson, AMD's, Windows' own
    return any(True for pattern in drivers for _ in Path("/dev").glob(pattern))


def place_in_group() -> tuple[int, int]:
    """Return which of the processes that torchrun started together this is, and how many they are: (0, 1) alone."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in wanted):
        return 0, 1
    try:
        place, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except ValueError:
        place = size = -1
    if not 0 <= place < size:
        given = f"RANK={os.environ['RANK']} and WORLD_SIZE={os.environ['WORLD_SIZE']}"
        raise ConfigError(f"torchrun sets RANK to a number from 0 to below WORLD_SIZE, the environment has {given}")
    return place, size


def cache_folder() -> Path:
    """Return where what can be computed again is kept: $DMUH_CACHE, or dmuh in the user's cache folder.

    A user without a home, as a service may be, has a folder among the temporary files.
    """
    chosen, of_the_user = os.environ.get("DMUH_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen)
    try:
        return Path(of_the_user or Path.home() / ".cache") / "dmuh"
    except RuntimeError:  # no HOME, and no entry in the list of users
        return Path(tempfile.gettempdir()) / f"dmuh-{os.getuid()}"


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, where it is glibc, rather than give it back and ask for it again.

    A step of training on a CPU frees and allocates the same large arrays, and the pages of fresh ones cost as much as
    the arithmetic: without this, steps of 128 images on the upper stages of a network take twice the time.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def give_freed_memory_back() -> None:
    """Have the C library give back what was kept, where it is glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def wait_asleep() -> None:
    """Have the threads that torch computes with sleep while they wait for each other, unless the environment says how.

    They would spin, each on the core that another one needs where a machine has other work too: two threads then took
    50 times as long for a step of training. It holds for a torch that is imported later, in processes that are started
    from here too.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL("libc.so.6") if platform.libc_ver()[0] == "glibc" else None
