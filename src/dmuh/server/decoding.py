"""Decoders: processes that look into images which strangers sent, so that the service itself never does.

A file can be made to take a decoder minutes, or gigabytes, or to break it. So each is decoded by a process that has so
much time and memory, and is ended if it needs more; another takes its place. Small files never wait for large ones: one
process takes nothing else. No process can make the service run anything: what it sends back is a line of JSON and raw
bytes.
"""

import asyncio
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.errors import RequestError
from dmuh.images import Pixels, Preprocess
from dmuh.machine import cores
from dmuh.server.looking import limit_memory, look
from dmuh.server.uploads import KINDS, Kind
from dmuh.workers import worker_process

_SECONDS = 5.0  # that one image may take; a photograph of 50 megapixels takes one or two
_PROCESSES = 4  # at most: there is more to do than to decode
_WAITING = {True: 256, False: 64}  # quick images at a time, and others; more are refused
_SMALL = 2**18  # bytes of a file that may be a quick one, and of those that are sent together
_TOGETHER = 16  # quick ones that are sent together at most
_LOOK = 0.25  # seconds after which it is seen that nobody waits for an image any more
_READY = 60.0  # seconds that a process may take to start


Answer = tuple[dict[str, Any], bytes]  # what there is to say of an image, and raw bytes


@dataclass(eq=False)
class _Job:
    """One image to be decoded, and who waits for that."""

    what: str
    content: bytes | bytearray
    quick: bool
    alone: bool = False  # it was sent with others, and one of them was too much
    answer: "asyncio.Future[Answer]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def left(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.answer.done()

    def settle(self, result: "Answer | Exception") -> None:
        """Hand the result to who waits for it, in the event loop."""
        if self.left:
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class Decoders:
    """A few processes that decode images, and a thread for each that hands it its work."""

    def __init__(self, preprocess: Preprocess, most_pixels: int, *, seconds: float = _SECONDS) -> None:
        self._preprocess = preprocess
        self._most_pixels = most_pixels
        self._seconds = seconds
        self._waiting: dict[bool, deque[_Job]] = {True: deque(), False: deque()}  # the quick ones, and the others
        self._changed = threading.Condition()
        self._closed = False
        n = max(2, min(cores(), _PROCESSES))
        self._threads = [
            threading.Thread(target=self._work, args=(position == 0,), name=f"dmuh-decode-{position}", daemon=True)
            for position in range(n)
        ]
        for thread in self._threads:
            thread.start()

    async def pixels(self, content: bytes | bytearray) -> tuple[Kind, Pixels]:
        """Return the type and the pixels of an uploaded image; what is not exactly one is refused with a sentence."""
        about, raw = await self._ask(_Job("pixels", content, len(content) <= _SMALL))
        size = self._preprocess.size
        return KINDS[about["kind"]], np.frombuffer(raw, np.uint8).reshape(size, size, 3)

    async def thumbnail(self, file: Path, length: int) -> bytes:
        """Return a small picture of an image file of this length, as a WebP file."""
        return (await self._ask(_Job("thumbnail", os.fsencode(file), length <= _SMALL)))[1]

    def close(self) -> None:
        """End the processes; images that wait are not decoded any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def _ask(self, job: _Job) -> Answer:
        with self._changed:
            if len(self._waiting[job.quick]) >= _WAITING[job.quick]:
                raise _too_many()
            self._waiting[job.quick].append(job)
            self._changed.notify()
            if not job.quick:
                self._changed.notify_all()  # the one that was woken may take quick ones alone
        try:
            return await job.answer
        finally:
            if job.answer.cancelled():  # its bytes are not kept for nobody
                with self._changed:
                    if job in self._waiting[job.quick]:
                        self._waiting[job.quick].remove(job)

    def _work(self, only_quick: bool) -> None:
        """Hand images to a process until all is closed; runs in a thread for each process."""
        process = _Process(self._preprocess, self._most_pixels)
        while jobs := self._next(only_quick):
            refusal = RequestError(503, "no image can be looked at now: try again in a moment")
            answers = None
            if process.send(jobs):
                refusal = RequestError(422, "this image takes too much time or memory to decode")
                answers = process.receive(self._seconds, partial(self._wanted, jobs))
            if answers is not None and len(answers) == len(jobs):
                self._settle(jobs, [self._result(job, *answer) for job, answer in zip(jobs, answers, strict=True)])
                continue
            process.end()
            process = _Process(self._preprocess, self._most_pixels)
            if len(jobs) == 1:
                self._settle(jobs, [refusal])
            else:  # it is not known which of them it was
                for job in jobs:
                    job.alone = True
                self._put_back(jobs)
        process.end()

    def _settle(self, jobs: Sequence[_Job], results: Sequence[Answer | Exception | None]) -> None:
        """Hand results to who waits for them; None is for one that waits on."""

        def settle() -> None:
            for job, result in zip(jobs, results, strict=True):
                if result is not None:
                    job.settle(result)

        with suppress(RuntimeError):  # the service has ended
            jobs[0].answer.get_loop().call_soon_threadsafe(settle)

    def _wanted(self, jobs: Sequence[_Job]) -> bool:
        return not self._closed and not all(job.left for job in jobs)

    def _next(self, only_quick: bool) -> list[_Job]:
        """Wait for work and return some: one image, or a few quick ones; none when all is closed."""
        with self._changed:
            while not self._closed:
                if not only_quick and self._waiting[False]:
                    return [self._waiting[False].popleft()]
                if self._waiting[True]:
                    return self._few_quick()
                self._changed.wait()
        return []

    def _few_quick(self) -> list[_Job]:
        quick = self._waiting[True]
        share = min(-(-len(quick) // len(self._threads)), _TOGETHER)
        jobs, length = [quick.popleft()], 0
        while len(jobs) < share and not jobs[0].alone and length + len(quick[0].content) <= _SMALL:
            length += len(quick[0].content)
            jobs.append(quick.popleft())
        return jobs

    def _result(self, job: _Job, about: dict[str, Any], raw: bytes) -> Answer | Exception | None:
        """Return what a process has found; None for what was not quick, and waits among the others from now on."""
        if "error" in about:
            return RequestError(about["status"], about["error"])
        if not (about.get("large") and job.quick):
            return about, raw
        job.quick = False
        if len(self._waiting[False]) >= _WAITING[False]:
            return _too_many()
        self._put_back([job])
        return None

    def _put_back(self, jobs: Sequence[_Job]) -> None:
        with self._changed:
            for job in reversed(jobs):
                if not job.left:
                    self._waiting[job.quick].appendleft(job)  # they have waited already
            self._changed.notify_all()


def _too_many() -> RequestError:
    return RequestError(503, "too many images are waiting to be looked at: try again in a moment")


class _Process:
    """A process that decodes images, and the pipe to it."""

    def __init__(self, preprocess: Preprocess, most_pixels: int) -> None:
        self._pipe, theirs = Pipe()
        self._process = worker_process(_serve, theirs, preprocess, most_pixels)
        self._started = False
        with theirs, suppress(OSError):  # where none can be started now, nothing can be sent
            self._process.start()

    def send(self, jobs: Sequence[_Job]) -> bool:
        """Send images, all at once: it reads them all before it answers."""
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

    def receive(self, seconds: float, wanted: Callable[[], bool]) -> list[Answer] | None:
        """Return what became of the images; None if they took too long, broke the process, or are not wanted now."""
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
        except (OSError, EOFError, ValueError, LookupError, TypeError):  # whatever a broken one may have sent
            return None
        return answers

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._process.close()
        self._pipe.close()


def _serve(pipe: Connection, preprocess: Preprocess, most_pixels: int) -> None:
    """Decode what comes through the pipe; this runs in the process."""
    with suppress(EOFError, OSError):  # the service has ended
        pipe.send_bytes(b"ready")
        while True:
            jobs, contents = json.loads(pipe.recv_bytes()), memoryview(pipe.recv_bytes())
            limit_memory([job["what"] for job in jobs], most_pixels)
            answers, at = [], 0
            for job in jobs:
                content = bytes(contents[at : at + job["bytes"]])
                at += job["bytes"]
                answers.append(look(job["what"], content, preprocess, most_pixels, quick=job["quick"]))
            head = json.dumps([about | {"bytes": len(raw)} for about, raw in answers]).encode()
            pipe.send_bytes(b"".join([head, b"\n", *(raw for _, raw in answers)]))
