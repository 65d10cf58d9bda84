"""UploadReceiver: uploads on their way, which together take no more memory than they may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dmuh.errors import RequestError

_ALL = 128_000_000  # bytes of all uploads that come or wait, where two of the largest are not more


@dataclass(eq=False)
class _Upload:
    """An upload, and the task that receives it."""

    task: "asyncio.Task[Any] | None"
    content: bytearray = field(default_factory=bytearray)
    gone: bool = False


class UploadReceiver:
    """Receives uploads of up to `most` bytes each.

    Where all together become too many, the one that has taken longest to arrive is given up, so that a few that never
    come to an end do not keep others out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_all = max(_ALL, 2 * most)
        self._held = 0
        self._coming: dict[_Upload, None] = {}  # those that are not whole, the oldest first

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the uploaded file; its bytes count until the block ends."""
        self._check(request)
        arrival = _Upload(asyncio.current_task())
        self._coming[arrival] = None
        try:
            await self._fill(arrival, request)
            del self._coming[arrival]
            yield arrival.content
        finally:
            self._give_up(arrival)

    def _check(self, request: Request) -> None:
        kind = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
        if not kind.startswith("image/") and kind != "application/octet-stream":
            raise RequestError(415, "send the image itself as the body, with its type: curl --data-binary @image.jpg")
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._most:
            raise self._too_large()

    async def _fill(self, arrival: _Upload, request: Request) -> None:
        try:
            async for part in request.stream():
                arrival.content += part
                self._held += len(part)
                if len(arrival.content) > self._most:
                    raise self._too_large()
                self._make_room(arrival)
                if arrival.gone:
                    break
        except ClientDisconnect as error:
            raise RequestError(400, "the upload broke off") from error
        except asyncio.CancelledError:
            if not arrival.gone or arrival.task is None:
                raise
            arrival.task.uncancel()
        if arrival.gone:
            raise RequestError(503, "too much is being uploaded at a time: try again in a moment")

    def _make_room(self, newest: _Upload) -> None:
        while self._held > self._most_of_all and not newest.gone:
            oldest = next(iter(self._coming))
            self._give_up(oldest)
            oldest.gone = True
            if oldest is not newest and oldest.task is not None:
                oldest.task.cancel()

    def _give_up(self, arrival: _Upload) -> None:
        self._coming.pop(arrival, None)
        self._held -= len(arrival.content)
        arrival.content = bytearray()

    def _too_large(self) -> RequestError:
        return RequestError(413, f"an upload may have {self._most:,} bytes at most")
