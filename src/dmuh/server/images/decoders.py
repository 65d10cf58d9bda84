"""Decoders: a pool of processes that decode images of strangers, so that the service itself never does.

A file can be made to take a decoder minutes or gigabytes, or to crash it. So each is decoded in a process with a bound
on time and memory, which is killed and replaced if it needs more. Small files never wait for large ones: one process
takes nothing but small ones.
"""

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dmuh.errors import RequestError
from dmuh.images import Pixels, Preprocess
from dmuh.machine import cores
from dmuh.server.images.decoder_process import Decoded, DecoderProcess, Job
from dmuh.server.images.upload_check import KINDS, Kind

_SECONDS = 5.0  # that one image may take; a photograph of 50 megapixels takes one or two
_PROCESSES = 4  # at most: other work needs cores too
_WAITING = {True: 256, False: 64}  # quick images that may wait, and others; more are refused
_SMALL = 2**18  # bytes of a file that is taken for a quick one, and of all files that are sent together
_TOGETHER = 16  # quick images that are sent to a process together at most


class Decoders:
    """A few processes that decode images, and a thread for each that hands it its work."""

    def __init__(self, preprocess: Preprocess, most_pixels: int, *, seconds: float = _SECONDS) -> None:
        self._preprocess = preprocess
        self._most_pixels = most_pixels
        self._seconds = seconds
        self._waiting: dict[bool, deque[Job]] = {True: deque(), False: deque()}  # the quick ones, and the others
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
        """Return the type and the pixels of an uploaded image; anything else is refused with a sentence."""
        about, raw = await self._submit(Job("pixels", content, len(content) <= _SMALL))
        size = self._preprocess.size
        return KINDS[about["kind"]], np.frombuffer(raw, np.uint8).reshape(size, size, 3)

    async def thumbnail(self, file: Path, length: int) -> bytes:
        """Return a small picture of an image file of this length, as a WebP file."""
        return (await self._submit(Job("thumbnail", os.fsencode(file), length <= _SMALL)))[1]

    async def picture(self, file: Path, length: int) -> bytes:
        """Return a large picture of an image file of this length, as a WebP file."""
        return (await self._submit(Job("picture", os.fsencode(file), length <= _SMALL)))[1]

    def close(self) -> None:
        """End the processes; images that wait are not decoded any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def _submit(self, job: Job) -> Decoded:
        with self._changed:
            if len(self._waiting[job.quick]) >= _WAITING[job.quick]:
                raise _too_many()
            self._waiting[job.quick].append(job)
            self._changed.notify()
            if not job.quick:
                self._changed.notify_all()  # the thread that was woken may be the one that takes quick images only
        try:
            return await job.answer
        finally:
            if job.answer.cancelled():  # the request was cancelled: do not hold its bytes any longer
                with self._changed:
                    if job in self._waiting[job.quick]:
                        self._waiting[job.quick].remove(job)

    def _work(self, only_quick: bool) -> None:
        """Hand images to a process until the pool is closed; runs in one thread per process."""
        process = DecoderProcess(self._preprocess, self._most_pixels)
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
            process = DecoderProcess(self._preprocess, self._most_pixels)
            if len(jobs) == 1:
                self._settle(jobs, [refusal])
            else:  # which one was too much is not known: each is tried alone
                for job in jobs:
                    job.alone = True
                self._put_back(jobs)
        process.end()

    def _settle(self, jobs: Sequence[Job], results: Sequence[Decoded | Exception | None]) -> None:
        """Hand results to the requests that wait for them; None is for a job that was put back."""

        def settle() -> None:
            for job, result in zip(jobs, results, strict=True):
                if result is not None:
                    job.settle(result)

        with suppress(RuntimeError):  # the service has ended
            jobs[0].answer.get_loop().call_soon_threadsafe(settle)

    def _wanted(self, jobs: Sequence[Job]) -> bool:
        return not self._closed and not all(job.abandoned for job in jobs)

    def _next(self, only_quick: bool) -> list[Job]:
        """Wait for jobs; return one, or a few quick ones, or none when the pool is closed."""
        with self._changed:
            while not self._closed:
                if not only_quick and self._waiting[False]:
                    return [self._waiting[False].popleft()]
                if self._waiting[True]:
                    return self._few_quick()
                self._changed.wait()
        return []

    def _few_quick(self) -> list[Job]:
        quick = self._waiting[True]
        share = min(-(-len(quick) // len(self._threads)), _TOGETHER)
        jobs, length = [quick.popleft()], 0
        while len(jobs) < share and not jobs[0].alone and length + len(quick[0].content) <= _SMALL:
            length += len(quick[0].content)
            jobs.append(quick.popleft())
        return jobs

    def _result(self, job: Job, about: dict[str, Any], raw: bytes) -> Decoded | Exception | None:
        """Return the result of a job; None if it was not quick after all, and waits among the others from now on."""
        if "error" in about:
            return RequestError(about["status"], about["error"])
        if not (about.get("large") and job.quick):
            return about, raw
        job.quick = False
        if len(self._waiting[False]) >= _WAITING[False]:
            return _too_many()
        self._put_back([job])
        return None

    def _put_back(self, jobs: Sequence[Job]) -> None:
        with self._changed:
            for job in reversed(jobs):
                if not job.abandoned:
                    self._waiting[job.quick].appendleft(job)  # in front: they have waited already
            self._changed.notify_all()


def _too_many() -> RequestError:
    return RequestError(503, "too many images are waiting to be looked at: try again in a moment")
