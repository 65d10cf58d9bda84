"""DecoderProcess: one process that decodes images, and the pipe to it.

No process can make the service run anything: it sends back a line of JSON and raw bytes.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from dmuh.images import Preprocess
from dmuh.machine.workers import worker_process
from dmuh.server.images.decode import decode, limit_memory

_LOOK = 0.25  # seconds between two checks of whether anybody still waits for an image
_READY = 60.0  # seconds that a process may take to start

Decoded = tuple[
    dict[str, Any], bytes
]  # of one image: its type or an error, and the raw bytes of its pixels or thumbnail


@dataclass(eq=False)
class Job:
    """One image to be decoded, and the future that a request waits for."""

    what: str
    content: bytes | bytearray
    quick: bool
    alone: bool = False  # it was in a batch that failed: send it alone
    answer: "asyncio.Future[Decoded]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def abandoned(self) -> bool:
        """Whether no request waits for it any more."""
        return self.answer.done()

    def settle(self, result: "Decoded | Exception") -> None:
        """Hand the result to the request that waits for it; to be called in the event loop."""
        if self.abandoned:
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class DecoderProcess:
    """A process that decodes images, and the pipe to it."""

    def __init__(self, preprocess: Preprocess, most_pixels: int) -> None:
        self._pipe, theirs = Pipe()
        self._process = worker_process(_serve, theirs, preprocess, most_pixels)
        self._started = False
        with theirs, suppress(OSError):  # if no process can be started, send() returns False
            self._process.start()

    def send(self, jobs: Sequence[Job]) -> bool:
        """Send images, all at once: the process reads all of them before it answers. Return whether that worked."""
        about = [{"what": job.what, "bytes": len(job.content), "quick": job.quick} for job in jobs]
        try:
            if not self._started and not (self._pipe.poll(_READY) and self._pipe.recv_bytes() == b"ready"):
                return False
            self._started = True
            self._pipe.send_bytes(json.dumps(about).encode())
            self._pipe.send_bytes(jobs[0].content if len(jobs) == 1 else b"".join(job.content for job in jobs))
        except (OSError, EOFError):
            return False
        return True

    def receive(self, seconds: float, wanted: Callable[[], bool]) -> list[Decoded] | None:
        """Return one result per image; None if they took too long, crashed the process, or no request waits now."""
        until = time.monotonic() + seconds
        try:
            while not self._pipe.poll(min(_LOOK, max(0.0, until - time.monotonic()))):
                if time.monotonic() >= until or not wanted():
                    return None
            head, _, raw = self._pipe.recv_bytes().partition(b"\n")
            answers, at = [], 0
            for about in json.loads(head):
                answers.append((about, raw[at : at + about["bytes"]]))
                at += about["bytes"]
        except (OSError, EOFError, ValueError, LookupError, TypeError):  # a hijacked process may send anything
            return None
        return answers

    def end(self) -> None:
        """Kill the process."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._process.close()
        self._pipe.close()


def _serve(pipe: Connection, preprocess: Preprocess, most_pixels: int) -> None:
    """Decode the images that come through the pipe; this runs in the process."""
    with suppress(EOFError, OSError):  # the service has ended
        pipe.send_bytes(b"ready")
        while True:
            jobs, contents = json.loads(pipe.recv_bytes()), memoryview(pipe.recv_bytes())
            limit_memory([job["what"] for job in jobs], most_pixels)
            answers, at = [], 0
            for job in jobs:
                content = bytes(contents[at : at + job["bytes"]])
                at += job["bytes"]
                answers.append(decode(job["what"], content, preprocess, most_pixels, quick=job["quick"]))
            head = json.dumps([about | {"bytes": len(raw)} for about, raw in answers]).encode()
            pipe.send_bytes(b"".join([head, b"\n", *(raw for _, raw in answers)]))
