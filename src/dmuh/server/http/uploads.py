"""UploadReceiver: receives the bytes of uploads, which together take a bounded amount of memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dmuh.errors import RequestError

_ALL = 128_000_000  # bytes of all uploads in memory, or twice the largest allowed if that is more


@dataclass(eq=False)
class _Upload:
    """An upload so far, and the task that receives it."""

    task: "asyncio.Task[Any] | None"
    content: bytearray = field(default_factory=bytearray)
    given_up: bool = False


class UploadReceiver:
    """Receives uploads of up to `most` bytes each.

    When all uploads together take too much memory, the one that began first and is not complete is given up, so that a
    few that never end do not keep others out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_all = max(_ALL, 2 * most)
        self._total_bytes = 0
        self._incomplete: dict[_Upload, None] = {}  # the oldest first

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the uploaded file; its bytes count until the block ends."""
        self._check(request)
        upload = _Upload(asyncio.current_task())
        self._incomplete[upload] = None
        try:
            await self._fill(upload, request)
            del self._incomplete[upload]
            yield upload.content
        finally:
            self._give_up(upload)

    def _check(self, request: Request) -> None:
        kind = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
        if not kind.startswith("image/") and kind != "application/octet-stream":
            raise RequestError(415, "send the image itself as the body, with its type: curl --data-binary @image.jpg")
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._most:
            raise self._too_large()

    async def _fill(self, upload: _Upload, request: Request) -> None:
        try:
            async for part in request.stream():
                upload.content += part
                self._total_bytes += len(part)
                if len(upload.content) > self._most:
                    raise self._too_large()
                self._make_room(upload)
                if upload.given_up:
                    break
        except ClientDisconnect as error:
            raise RequestError(400, "the upload broke off") from error
        except asyncio.CancelledError:
            if not upload.given_up or upload.task is None:
                raise
            upload.task.uncancel()
        if upload.given_up:
            raise RequestError(503, "too much is being uploaded at a time: try again in a moment")

    def _make_room(self, newest: _Upload) -> None:
        while self._total_bytes > self._most_of_all and not newest.given_up:
            oldest = next(iter(self._incomplete))
            self._give_up(oldest)
            oldest.given_up = True
            if oldest is not newest and oldest.task is not None:
                oldest.task.cancel()

    def _give_up(self, upload: _Upload) -> None:
        self._incomplete.pop(upload, None)
        self._total_bytes -= len(upload.content)
        upload.content = bytearray()

    def _too_large(self) -> RequestError:
        return RequestError(413, f"an upload may have {self._most:,} bytes at most")
