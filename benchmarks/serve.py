"""The service under load: searches by id and by upload over a million codes, against FAISS behind the same server.

    python benchmarks/serve.py [SECONDS] [N]

The load is wrk's, a package of most systems: one thread, 16 connections, on loopback, on the cores that the server uses
too. Codes are 48 bits, near their class's centre, 20% of them distinct; the 10 nearest of a random id are asked for, or
of a 28-pixel digit that is uploaded. The peer is the same server with faiss.IndexBinaryFlat as its index. Graded codes
are the same with one sure bit per bit; they are ranked softly, by the stored levels of the query and of the codes.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import graded_codes, learned_outputs, memory_status, report, table
from PIL import Image

from dmuh import Codes, HammingIndex, Hasher, Matches

N_BITS, CONNECTIONS = 48, 16
BY_ID = """math.randomseed(7)
request = function() return wrk.format("GET", "/api/search?k=10&id=" .. math.random(0, {last})) end
"""
BY_UPLOAD = """local file = io.open("{image}", "rb")
wrk.method, wrk.path, wrk.body = "POST", "/api/search?k=10", file:read("*a")
wrk.headers["content-type"] = "image/png"
"""


class FlatIndex:
    """FAISS's exact index, as its documentation says, behind what the service asks of an index."""

    def __init__(self) -> None:
        import faiss

        self._index = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(N_BITS))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, codes: Codes) -> None:
        """Add codes."""
        if len(codes):
            self._index.add_with_ids(np.ascontiguousarray(codes.bits), codes.ids)

    def remove(self, ids: Sequence[int]) -> None:
        """Remove codes by id."""
        self._index.remove_ids(np.asarray(ids, np.int64))

    def search(self, queries: Codes, k: int, *, ranking: str | None = None) -> Matches:
        """Return the k nearest codes of each query by Hamming distance, which is all that it knows."""
        del ranking
        return Matches(*self._index.search(np.ascontiguousarray(queries.bits), min(k, len(self))))


@dataclass
class Load:
    """What a load showed: requests a second, the 99th percentile in ms, memory at the begin and the end in MB."""

    rate: float
    p99: float
    memory: tuple[float, float]


def prepare(folder: Path, n: int) -> None:
    """Train a network for a moment, and fill catalogues with codes."""
    from dmuh import configure, train

    train(configure({"bits": N_BITS, "epochs": 1, "train": 20, "query": 5}), folder / "run")
    fill(folder, n)


def fill(folder: Path, n: int) -> None:
    """Fill catalogues of the network in `run` with codes as learned ones are, plain and graded ones."""
    from dmuh.catalogue import Entry, StateFolder

    rng = np.random.default_rng(0)
    graded, _ = graded_codes(*learned_outputs(n, 1, N_BITS, 0.2, rng))
    contents = rng.integers(-(2**63), 2**63, n)  # no two images are the same, which is looked up all the same
    for name, levels, worth in (("plain", None, None), ("graded", graded.levels, graded.worth)):
        codes = Codes(graded.bits, N_BITS, levels=levels, worth=worth, contents=contents)
        entries = (Entry(f"{row}.png", [f"label {row % 14}"], id=row) for row in range(n))
        with StateFolder(folder / name).open(Hasher.load(folder / "run")) as catalogue:
            catalogue.add(entries, codes)


def serve(folder: Path, peer: str) -> None:
    """Serve a catalogue until the process ends; its own address is the first line that is printed."""
    from dmuh.catalogue import StateFolder
    from dmuh.server.api.app import create_app
    from dmuh.server.http import server as http_server
    from dmuh.server.limits import Limits
    from dmuh.server.metrics import ServiceMetrics
    from dmuh.server.service import Service

    hasher, state, limits, metrics = (
        Hasher.load(folder / "run"),
        StateFolder(folder / ("graded" if peer == "graded" else "plain")),
        Limits(),
        ServiceMetrics(),
    )
    with state.open(hasher) as catalogue, http_server.bind("127.0.0.1", 0) as opened:
        began = time.perf_counter()
        whole = FlatIndex() if peer == "faiss" else HammingIndex()
        whole.add(catalogue.codes())
        service = Service(
            hasher, catalogue, folder, state.added, most_pixels=limits.pixels, metrics=metrics, whole=whole
        )
        took = time.perf_counter() - began
        http_server.run(
            create_app(service, limits, metrics),
            opened,
            limits.seconds,
            lambda: print(http_server.address_of(opened), f"{took:.2f}", flush=True),
        )


@contextmanager
def server(folder: Path, peer: str) -> Iterator[tuple[int, str, float]]:
    """Run a server; yields its process id, its address, and how long its index took to build."""
    command = [sys.executable, __file__, "--serve", str(folder), peer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, took = process.stdout.readline().split()
        try:
            yield process.pid, address, float(took)
        finally:
            process.send_signal(signal.SIGINT)


def load(pid: int, address: str, script: Path, seconds: int, connections: int = CONNECTIONS) -> Load:
    """Put a server under load."""
    command = ["wrk", "-t1", f"-c{connections}", "--latency", "--timeout", "10s", "-s", str(script), address]
    subprocess.run([*command, "-d3s"], check=True, capture_output=True)  # to warm up
    memory = [memory_status("VmRSS", pid) / 1024]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1):
            memory.append(memory_status("VmRSS", pid) / 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    text = subprocess.run([*command, f"-d{seconds}s"], check=True, capture_output=True, text=True).stdout
    done.set()
    watcher.join()
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"the server refused some requests:\n{text}")
    rate = re.search(r"Requests/sec: +([\d.]+)", text)
    p99 = re.search(r"99% +([\d.]+)(us|ms|s)\n", text)
    if rate is None or p99 is None:
        raise SystemExit(f"wrk says neither how many nor how fast:\n{text}")
    unit = {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]]
    return Load(float(rate[1]), float(p99[1]) * unit, (memory[len(memory) // 10], memory[-1]))


def main(seconds: int = 60, n: int = 1_000_000) -> None:
    """Measure and print the tables."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, which makes the load: apt-get install wrk")
    loads: dict[str, dict[str, Load]] = {}
    read: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, n)
        digit = folder / "digit.png"
        rng = np.random.default_rng(0)
        Image.fromarray(rng.integers(0, 256, (28, 28), np.uint8)).save(digit)
        scripts = {
            "search by id": BY_ID.format(last=n - 1),
            "search by a 28-pixel upload": BY_UPLOAD.format(image=digit),
        }
        for peer in ("faiss", "dmuh", "graded"):
            with server(folder, peer) as (pid, address, took):
                read[peer] = took
                print(f"{peer}: {n:,} codes were read and indexed in {took:.2f} s", file=sys.stderr, flush=True)
                for what, text in scripts.items():
                    script = folder / "load.lua"
                    script.write_text(text)
                    loads.setdefault(what, {})[peer] = load(pid, address, script, seconds)
                    print(what, loads[what][peer], file=sys.stderr, flush=True)
    rows: list[dict[str, Any]] = [
        {
            f"{n:,} codes of {N_BITS} bits, {CONNECTIONS} connections, {seconds} s": what,
            "IndexBinaryFlat behind it": _shown(own["faiss"]),
            "dmuh": _shown(own["dmuh"]),
            "ratio": f"{own['dmuh'].rate / own['faiss'].rate:.1f}×",
            "dmuh, graded codes": _shown(own["graded"]),
            "of plain": f"{own['graded'].rate / own['dmuh'].rate:.2f}×",
            "memory, begin – end": "{:,.0f} – {:,.0f} MB".format(*own["graded"].memory),
        }
        for what, own in loads.items()
    ]
    took = f"{read['dmuh']:.1f} s, graded ones in {read['graded']:.1f} s"
    report("serve", table(rows), f"{n:,} codes were read and indexed in {took}.")


def _shown(own: Load) -> str:
    return f"{own.rate:,.0f}/s, p99 {own.p99:.0f} ms"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3])
    else:
        main(*map(int, sys.argv[1:]))
