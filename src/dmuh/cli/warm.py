"""dmuh warm."""

import time
from collections.abc import Callable
from typing import Any

from dmuh.cli.console import say, say_json, warn
from dmuh.cli.options import Json
from dmuh.cli.stopping import stoppable


@stoppable()
def warm(as_json: Json = False) -> None:
    """Compile what large searches and evaluations use, once after an install; nothing else needs it.

    Example: dmuh warm

    Small work never waits for a compiler. Large work, and a service in its first seconds, find the machine code ready.
    """
    from dmuh.machine import cores
    from dmuh.machine.workers import killable_pool, result_of

    names = list(_rehearsals())
    steps: list[dict[str, Any]] = []
    with killable_pool(min(cores(), len(names))) as pool:  # a compiler uses one core
        for name, working in [(name, pool.submit(_seconds_of, name)) for name in names]:
            seconds: float = result_of(working)
            steps.append({"name": name, "seconds": round(seconds, 3)})
            if not as_json:
                say(f"{name}: {seconds:.1f} s")
    from dmuh.index.compiled import kept_in
    from dmuh.index.scan import nearest

    folder = kept_in(nearest)
    if folder is None:
        warn("the machine code cannot be kept: set NUMBA_CACHE_DIR to a folder that can be written, and run it again")
    if as_json:
        say_json({"compiled": steps, "folder": None if folder is None else str(folder)})
    elif folder is not None:
        say(f"machine code for {len(steps)} kinds of work is in {folder} and beside it")


def _rehearsals() -> dict[str, Callable[[], None]]:
    from dmuh.index.kernel_use import KERNELS as SEARCH
    from dmuh.metrics.pairs import KERNELS as EVALUATION

    return SEARCH.rehearsals() | EVALUATION.rehearsals()


def _seconds_of(name: str) -> float:
    """Compile the kernels of one kind of work, in this process; return how long it took."""
    began = time.perf_counter()
    _rehearsals()[name]()
    return time.perf_counter() - began
