"""dmuh warm."""

import time
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
    from dmuh.index.kernel_use import KERNELS as SEARCH
    from dmuh.metrics.pairs import KERNELS as EVALUATION

    steps: list[dict[str, Any]] = []
    for name, rehearse in (SEARCH.rehearsals() | EVALUATION.rehearsals()).items():
        began = time.perf_counter()
        rehearse()
        steps.append({"name": name, "seconds": round(time.perf_counter() - began, 3)})
        if not as_json:
            say(f"{name}: {steps[-1]['seconds']:.1f} s")
    from dmuh.index.compiled import kept_in
    from dmuh.index.scan import nearest

    folder = kept_in(nearest)
    if folder is None:
        warn("the machine code cannot be kept: set NUMBA_CACHE_DIR to a folder that can be written, and run it again")
    if as_json:
        say_json({"compiled": steps, "folder": None if folder is None else str(folder)})
    elif folder is not None:
        say(f"machine code for {len(steps)} kinds of work is in {folder} and beside it")
