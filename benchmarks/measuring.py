"""What the benchmarks share: codes to measure on, a clock, and the memory of a piece of work."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from dmuh import Codes

Labels = NDArray[np.uint8]
Outputs = NDArray[np.float32]


def random_codes(n: int, n_bits: int, rng: np.random.Generator) -> Codes:
    """Return codes of independent fair bits: hardly two alike."""
    return Codes(np.packbits(rng.integers(0, 2, (n, n_bits), np.uint8), axis=1, bitorder="little"), n_bits)


def learned_codes(classes: NDArray[np.int64], n_bits: int, distinct: float, rng: np.random.Generator) -> Codes:
    """Return codes as learned ones are: near their class's centre, exactly a share `distinct` of them different.

    Each class has a random centre; its codes are the centre with some bits flipped. Of the different codes each occurs
    once, and the other images take one of their class by a power law, so a few codes are very common.
    """
    n_classes = int(classes.max()) + 1
    wanted = min(round(distinct * len(classes)), 2**n_bits if n_bits < 60 else len(classes))
    centres = rng.integers(0, 2, (n_classes, n_bits), np.uint8)
    pool = np.empty((0, -(-n_bits // 8)), np.uint8)
    owner = np.empty(0, np.int64)
    spread = 0.12
    while len(pool) < wanted:
        own = rng.integers(0, n_classes, 2 * (wanted - len(pool)) + 64)
        flips = rng.random((len(own), n_bits)) < spread
        fresh = np.packbits(centres[own] ^ flips, axis=1, bitorder="little")
        pool, owner = np.concatenate([pool, fresh]), np.concatenate([owner, own])
        _, first = np.unique(pool, axis=0, return_index=True)
        first = np.sort(first)[:wanted]
        pool, owner = pool[first], owner[first]
        spread = min(0.5, spread * 1.1)
    chosen = np.empty(len(classes), np.int64)
    for k in range(n_classes):
        images, codes = np.flatnonzero(classes == k), np.flatnonzero(owner == k)
        popularity = 1 / (1 + np.arange(len(codes)))
        others = rng.choice(codes, len(images) - len(codes), p=popularity / popularity.sum())
        chosen[rng.permutation(images)] = np.concatenate([codes, others])
    assert len(np.unique(chosen)) == wanted
    return Codes(pool[chosen], n_bits)


def near_codes(codes: Codes, n: int, rng: np.random.Generator) -> Codes:
    """Return n queries of the same kind: some of the codes, each with a few bits flipped."""
    chosen = codes.unpack()[rng.integers(0, len(codes), n)] ^ (rng.random((n, codes.n_bits)) < 0.02)
    return Codes(np.packbits(chosen, axis=1, bitorder="little"), codes.n_bits)


def learned_outputs(
    n: int, n_queries: int, n_bits: int, distinct: float, rng: np.random.Generator
) -> tuple[Outputs, Outputs]:
    """Return real outputs (n, n_bits) as a network gives them, and those of queries of the same kind.

    Each of 14 classes has a random centre of ±1; an image is its class's centre and noise, more of it the harder the
    image is. The noise is as large as gives a share `distinct` of different codes, or nearly all that there are.
    """
    total = n + n_queries
    centres = rng.choice(np.float32([-1, 1]), (14, n_bits))
    outputs = rng.standard_normal((total, n_bits), np.float32)
    outputs *= np.exp(0.6 * rng.standard_normal((total, 1), np.float32))
    signs = centres[rng.integers(0, 14, total)]
    wanted = min(distinct * n, 0.9 * 2.0**n_bits)
    low, high = 0.02, 2.0
    for _ in range(14):
        scale = np.float32((low * high) ** 0.5)
        found = _n_distinct(signs[:n] * outputs[:n] < -1 / scale, signs[:n] > 0)
        low, high = (scale, high) if found < wanted else (low, scale)
    outputs *= scale
    outputs += signs
    return outputs[:n], outputs[n:]


def _n_distinct(flipped: NDArray[np.bool_], bits: NDArray[np.bool_]) -> int:
    """Return how many different codes there are, by a hash of each."""
    packed = np.packbits(flipped ^ bits, axis=1)
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
    hashed = np.zeros(len(padded), np.uint64)
    for word in padded.T:
        hashed = (hashed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    return len(np.unique(hashed))


def graded_codes(outputs: Outputs, queries: Outputs) -> tuple[Codes, Codes]:
    """Return codes of outputs with one bit of sureness each, as a file keeps them, and queries with their uncertainty.

    A bit turns over with the probability Φ(-|output| / u), where u is 0.7 times the median of its bit; a bit is of the
    upper level where it is surer than half of its kind.
    """
    few = np.abs(outputs[:50_000])
    middle = np.median(few, axis=0)
    unit = np.float32(0.7) * middle

    def unsure(part: Outputs) -> NDArray[np.float32]:
        return (0.5 * erfc(np.abs(part) / (unit * np.float32(2**0.5)))).astype(np.float32)

    sureness = 1 - 2 * unsure(outputs[:50_000])
    upper = few > middle
    means = [(sureness * chosen).sum(axis=0) / chosen.sum(axis=0) for chosen in (~upper, upper)]
    worth = np.stack(means, axis=1).astype(np.float32)
    thresholds = (0.5 * erfc(middle / (unit * 2**0.5)))[:, None].astype(np.float32)
    parts = [
        Codes.from_outputs(part, unsure(part), ids=np.arange(first, first + len(part))).graded(thresholds, worth)
        for first in range(0, len(outputs), 100_000)
        for part in [outputs[first : first + 100_000]]
    ]
    return Codes.concatenated([part.stored() for part in parts]), Codes.from_outputs(queries, unsure(queries))


def seconds(work: Callable[[], Any], repeat: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest time of a few runs, by a clock."""
    best = float("inf")
    for _ in range(repeat):
        began = clock()
        work()
        best = min(best, clock() - began)
    return best


def thread_seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """Return the shortest time of a few runs that this thread spends on a core: others on the machine do not count.

    For work of one thread that waits for nothing.
    """
    return seconds(work, repeat, time.thread_time)


def megabytes_beyond(work: Callable[[], Any]) -> float:
    """Return how far the process's memory rises above what it holds now while it does the work (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory_status("VmRSS")
    work()
    return max(0.0, (memory_status("VmHWM") - before) / 1024)


def report(name: str, *parts: str) -> None:
    """Print tables and remarks; with SAVE=1 in the environment they are kept in results/NAME.md, under their command.

    The docs show those files, and a test holds the figures of the README to them.
    """
    text = "\n\n".join(parts)
    print(text, end="\n\n")
    if os.environ.get("SAVE"):
        arguments = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
        command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])
        file = Path(__file__).parent / "results" / f"{name}.md"
        file.write_text(f"<!-- {command} -->\n{text}\n", encoding="utf-8")


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as a Markdown table."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def memory_status(name: str, process: int | str = "self") -> int:
    """Return one of the kernel's figures of a process's memory, in kilobytes (Linux)."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


# What wait4 says of a process counts the memory of the one that started it, too.
_TELL_PEAK = """import atexit, os, pathlib, re
def tell():
    status = pathlib.Path("/proc/self/status").read_text()
    pathlib.Path(os.environ["PEAK"]).write_text(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
atexit.register(tell)
"""


def in_child(program: str, *arguments: object, **options: Any) -> tuple[float, float, float, str]:
    """Run a Python program in a new process (Linux); `options` are subprocess's.

    Returns its seconds, its seconds on a core, the most megabytes that it had, and what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        environment = {**(options.pop("env", None) or os.environ), "PEAK": str(peak)}
        command = [sys.executable, "-c", _TELL_PEAK + program, *map(str, arguments)]
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)
        assert process.stdout is not None
        text = process.stdout.read()
        _, process.returncode, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
        if process.returncode:
            raise SystemExit(f"{arguments} failed")
        return took, used.ru_utime + used.ru_stime, int(peak.read_text()) / 1024, text
