"""A service under attack: what a normal client sees meanwhile, and what memory it takes. `attack.py [SECONDS]`.

Several processes keep some 500 connections open, from 127.0.0.1 and other addresses of this machine, none with a right
to anything: heads and bodies that never end, headers behind bodies, requests that were answered long ago, answers that
nobody reads, images made to be slow. All goes to 127.0.0.1 and ends after the seconds given.
"""

import io
import multiprocessing
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
from measuring import report, table
from PIL import Image

SECONDS, WARM = 300, 5
PAUSE = 1.0  # seconds after which an attacker comes again whose connection was ended
MOST_REFUSED, MOST_P99, MOST_MEMORY = 0.01, 1.0, 1200.0
LENGTH = 16_000_000  # of an upload at most
POST = b"POST /api/search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: image/png\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


def slow_image(scans: int, side: int = 2000) -> bytes:
    """Return a progressive JPEG whose last scan is there many times: little to send, much to decode."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert("RGB").save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    return content[:-2] + content[content.rindex(b"\xff\xda") : -2] * scans + content[-2:]


def large_image(side: int = 7000) -> bytes:
    """Return a PNG that is as large as may be: little to send, much memory to decode."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def uploaded(content: bytes) -> bytes:
    """Return the request that searches with an image."""
    return POST + b"content-length: %d\r\n\r\n" % len(content) + content


@dataclass
class Kind:
    """A kind of connection: how many there are, what each sends first, and then every so many seconds; if it reads."""

    n: int
    begin: bytes
    more: bytes = b""
    every: float = 1.0
    reads: bool = True


def kinds() -> dict[str, Kind]:
    """Return what an attack is made of."""
    get = b"GET /api/images/1/file HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    full = POST + b"content-length: %d\r\n\r\n" % LENGTH + bytes(LENGTH // 2)
    return {
        "slow heads": Kind(120, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"a: b\r\n"),
        "slow bodies": Kind(100, POST + b"content-length: 100000\r\n\r\n", b"x"),
        "large slow bodies": Kind(20, full, b"x"),
        "trailers": Kind(40, CHUNKED + b"1\r\nx\r\n0\r\n", b"x-more: " + b"y" * 60_000 + b"\r\n", 0.2),
        "half answers": Kind(100, POST.replace(b"image/png", b"text/plain") + b"content-length: 100000\r\n\r\n", b"x"),
        "slow readers": Kind(60, get, reads=False),
        "slow decodes": Kind(20, uploaded(slow_image(3000))),
        "slow decodes that pass the checks": Kind(10, uploaded(slow_image(80, 6000))),
        "large decodes": Kind(10, uploaded(large_image())),
        "idle": Kind(20, b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"),
    }


@dataclass
class Hostile:
    """One connection of an attacker."""

    kind: Kind
    socket: socket.socket
    unsent: memoryview
    next: float = 0.0


def attack(port: int, seconds: float, address: str, share: int, shares: int) -> None:
    """Keep a share of the connections of each kind open; those that are ended are opened again."""
    selector, until, own = selectors.DefaultSelector(), time.monotonic() + seconds, kinds()
    missing = [(0.0, kind) for kind in own.values() for _ in range(share, kind.n, shares)]
    random.Random(share).shuffle(missing)
    while (now := time.monotonic()) < until:
        due = [position for position, (when, _) in enumerate(missing) if when < now][:5]
        for kind in [missing.pop(position)[1] for position in reversed(due)]:
            made = socket.socket()
            made.setblocking(False)
            with suppress(BlockingIOError):
                made.bind((address, 0))
                made.connect(("127.0.0.1", port))
            hostile = Hostile(kind, made, memoryview(kind.begin))
            selector.register(made, selectors.EVENT_WRITE, hostile)
        for key, events in selector.select(0.02):
            if not step(selector, key.data, events):
                selector.unregister(key.fileobj)
                key.data.socket.close()
                missing.append((now + PAUSE, key.data.kind))
        for key in list(selector.get_map().values()):
            if key.data.kind.more and not key.data.unsent and key.data.next < now:
                key.data.unsent, key.data.next = memoryview(key.data.kind.more), now + key.data.kind.every
                selector.modify(key.fileobj, selectors.EVENT_READ | selectors.EVENT_WRITE, key.data)


def step(selector: selectors.BaseSelector, own: Hostile, events: int) -> bool:
    """Send or read what can be; return whether the connection goes on."""
    try:
        if events & selectors.EVENT_WRITE:
            own.unsent = own.unsent[own.socket.send(own.unsent[:262_144]) :]
            if not own.unsent:
                own.next = time.monotonic() + own.kind.every
                selector.modify(own.socket, selectors.EVENT_READ if own.kind.reads else 0x8, own)
        if events & selectors.EVENT_READ:
            return bool(own.socket.recv(65_536))
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        return False
    return True


@dataclass
class Seen:
    """What a normal client saw: seconds that each answer took, and what was not answered, by what it was."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)


def ask(port: int, seconds: float, results: Any) -> None:
    """Search by id and by upload, over connections that are kept and new ones, and measure each."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)).save(buffer, "PNG")
    small, seen, until = buffer.getvalue(), Seen(), time.monotonic() + seconds
    kept = HTTPConnection("127.0.0.1", port, timeout=30)
    png = {"content-type": "image/png"}
    while time.monotonic() < until:
        for what, method, path, body in (
            ("by id", "GET", "/api/search?k=10&id=2", None), ("by upload", "POST", "/api/search?k=10", small)
        ):  # fmt: skip
            for how in ("kept", "new"):
                connection = kept if how == "kept" else HTTPConnection("127.0.0.1", port, timeout=30)
                began, name = time.perf_counter(), f"{what}, {how} connection"
                try:
                    connection.request(method, path, body, png if body else {})
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status != 200:
                        seen.refused[f"{name}: {answer.status}"] += 1
                except (OSError, HTTPException) as error:
                    seen.refused[f"{name}: {type(error).__name__}"] += 1
                    kept.close()
                seen.latencies.setdefault(name, []).append(time.perf_counter() - began)
                if how == "new":
                    connection.close()
        time.sleep(0.02)
    results.put(seen)


def tree_memory(pid: int) -> float:
    """Return the megabytes that a process and those it started take, shared pages counted in parts (Linux)."""
    total, pids = 0.0, [pid]
    while pids:
        own = pids.pop()
        with suppress(OSError, StopIteration):
            for task in Path(f"/proc/{own}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
            rollup = Path(f"/proc/{own}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1000
    return total


def prepare(folder: Path) -> None:
    """Train a network for a moment, export it, and lay out a few images, one of them of 15 MB."""
    from dmuh import configure, train
    from dmuh.encoder import export_run

    train(configure({"bits": 48, "epochs": 1, "train": 20, "query": 5}), folder / "run")
    export_run(folder / "run", folder / "model")
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    for n, side in enumerate([2240, *[28] * 50]):
        Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(folder / "images" / f"{n:03}.png")


def measure(folder: Path, seconds: float) -> tuple[Seen, float, float, str]:
    """Attack a service; return what a client saw, the memory before and at most, and what the service logged."""
    command = [sys.executable, "-m", "dmuh.cli", "serve", str(folder / "model"), "--images", str(folder / "images"),
               "--port", "0"]  # fmt: skip
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as service,
    ):
        assert service.stdout is not None
        port = int(service.stdout.readline().split(" at ")[1].split()[0].rsplit(":", 1)[1])
        time.sleep(WARM)
        memory, done = [tree_memory(service.pid)], threading.Event()

        def watch() -> None:
            while not done.wait(0.25):
                memory.append(tree_memory(service.pid))

        watcher = threading.Thread(target=watch)
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        addresses = ["127.0.0.1", "127.0.0.1", "127.0.0.7", "127.0.1.9"]
        processes = [
            context.Process(target=attack, args=(port, seconds + WARM, address, share, len(addresses)))
            for share, address in enumerate(addresses)
        ]
        for process in processes:
            process.start()
        time.sleep(WARM)
        watcher.start()
        client = context.Process(target=ask, args=(port, seconds, results))
        client.start()
        try:
            seen = results.get(timeout=seconds + 120)
        except Empty:
            raise SystemExit("the client did not come to an end") from None
        finally:
            done.set()
            watcher.join()
            for process in [*processes, client]:
                process.kill()
                process.join()
            alive = service.poll() is None
            service.send_signal(signal.SIGINT)
    if not alive:
        raise SystemExit(f"the service ended by itself:\n{(folder / 'log').read_text()[-2000:]}")
    return seen, memory[0], max(memory), (folder / "log").read_text()


def main(seconds: int = SECONDS) -> int:
    """Measure, print the table, and return whether a target was missed."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        seen, before, most, log = measure(Path(name), seconds)
    every = sorted(latency for own in seen.latencies.values() for latency in own)
    refused = sum(seen.refused.values()) / len(every)
    rows: list[dict[str, str]] = []
    missed = 0

    def row(what: str, target: float | None, measured: float, show: Callable[[float], str]) -> None:
        nonlocal missed
        missed += target is not None and measured > target
        rows.append({
            f"{sum(kind.n for kind in kinds().values())} hostile connections, {seconds} s": what,
            "at most": "" if target is None else show(target), "measured": show(measured),
        })  # fmt: skip

    row("requests of a normal client", None, len(every), lambda n: f"{n:,.0f}")
    row("of them refused", MOST_REFUSED, refused, lambda share: f"{share:.2%}")
    row("99th percentile of the latency", MOST_P99, every[int(len(every) * 0.99)], lambda s: f"{s * 1000:,.0f} ms")
    for what, own in seen.latencies.items():
        row(f"… {what}", None, sorted(own)[int(len(own) * 0.99)], lambda s: f"{s * 1000:,.0f} ms")
    row("the longest", None, every[-1], lambda s: f"{s * 1000:,.0f} ms")
    row("memory with all processes", MOST_MEMORY, most, lambda n: f"{n:,.0f} MB")
    row("… before the attack", None, before, lambda n: f"{n:,.0f} MB")
    report("attack", table(rows))
    for what, n in seen.refused.most_common():
        print(f"{n} × {what}", file=sys.stderr)
    tracebacks = log.count("Traceback")
    if tracebacks:
        print(f"the service logged {tracebacks} tracebacks:\n{log[-3000:]}", file=sys.stderr)
    return 1 if missed or tracebacks else 0


if __name__ == "__main__":
    os.environ.setdefault("DMUH_CACHE", tempfile.gettempdir())
    sys.exit(main(*map(int, sys.argv[1:])))
