"""HttpProtocol: HTTP/1.1 for clients that may be slow or greedy on purpose.

A request is bounded while it arrives, before any route sees it: the bytes of its head and of all of it, the number of
its headers, and its time, counted from its first byte and not from its last.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dmuh.errors import RequestError
from dmuh.server.http.connections import Connections, Stage
from dmuh.server.http.guard import App, Receive, Scope, Send, guarded, refusal_body, refuse

_DRY_BYTES = 65_536  # in a row without any of a body: the head of a request, or lengths of chunks
_HEADERS = 100  # of a request
_PIPELINED = 16  # requests that may wait for the answer to an earlier one on the same connection
_LINGER = 3.0  # seconds that a client may still send or read after the answer
_IDLE = 15.0  # seconds that a connection stays open between two requests


class HttpProtocol(HttpToolsProtocol):
    """One connection; `seconds` are those that a request may take, `most` the bytes of its body."""

    def __init__(self, connections: Connections, seconds: float, most: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.address = ""
        self._connections = connections
        self._seconds = seconds
        self._most = 2 * most + _DRY_BYTES  # chunks may be small, but not so small that their lengths are most of it
        self._received = self._body = self._dry = (
            0  # bytes of the request, of its body, and since the last byte of a body
        )
        self._begun = self._headed = self._answered = time.monotonic()
        self._has_head = self._is_whole = False
        self._refusal: RequestError | None = None
        self._active: RequestResponseCycle | None = None  # the request that `_task` answers
        self._task: asyncio.Task[Any] | None = None

    def stage(self) -> Stage:
        """Return how far the connection has come."""
        active = self._active
        if active is not None and not active.response_complete and not active.more_body:
            return Stage.UNREAD if self.flow.write_paused else Stage.WORK
        if not self._is_whole:
            return Stage.BODY if self._has_head else Stage.HEAD
        return Stage.UNREAD if self.transport.is_closing() or self.transport.get_write_buffer_size() else Stage.IDLE

    def due(self) -> float:
        """Return until when the connection may stay as it is."""
        stage, read = self.stage(), self._headed + self._seconds + _LINGER
        if self.transport.is_closing() or stage is Stage.UNREAD:
            return read
        if stage is Stage.HEAD:
            return self._begun + self._seconds
        if stage is Stage.BODY:
            is_answered = self._active is not None and self._active.response_complete
            return self._answered + _LINGER if is_answered else read
        return self._answered + _IDLE if stage is Stage.IDLE else float("inf")  # the guard bounds the time of a request

    def abort(self) -> None:
        """End the connection at once, whatever was to be sent."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new connection, if there is room."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._begun = time.monotonic()
        if not self._connections.add(self):
            self.app = _no_room

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all that is being done for the connection."""
        self._connections.remove(self)
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._task is not None:
            self._task.cancel()  # nobody waits for the answer

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, of which a request may have only so many."""
        before = self._body
        self._received += len(data)
        super().data_received(data)
        self._dry = 0 if self._body > before or self._is_whole else self._dry + len(data)
        if self._dry > _DRY_BYTES or self._received > self._most:
            self._refuse(RequestError(413, "the request is too long"))
        self._connections.update(self)

    def on_message_begin(self) -> None:
        """Begin to count for a new request."""
        super().on_message_begin()
        self._begun = time.monotonic()
        self._received = self._body = 0
        self._has_head = self._is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, of which there may be only so many, and none behind the body."""
        if self._has_head:
            raise self._refused("headers may not follow the body of a request")
        if len(self.headers) == _HEADERS:
            raise self._refused(f"a request may have {_HEADERS} headers at most")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Have the request answered; its body may still come."""
        self._has_head = True
        self._headed = time.monotonic()
        super().on_headers_complete()
        if len(self.pipeline) > _PIPELINED:
            raise self._refused(f"{_PIPELINED} requests may wait for an answer at most")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that all of the request has come."""
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that all of the answer is on its way."""
        self._answered = time.monotonic()
        super().on_response_complete()
        self._unset_keepalive_if_required()  # Connections checks the deadlines of all connections together
        self._connections.update(self)

    def pause_writing(self) -> None:
        """Wait until the client has taken some of the answer."""
        super().pause_writing()
        self._connections.update(self)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._connections.update(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not know."""
        del msg
        self._refuse(self._refusal or RequestError(400, "this is not a request that HTTP/1.1 knows"))

    def _refused(self, sentence: str) -> RequestError:
        """Return an error to raise while a request is parsed; the parser passes it on as an error of its own type."""
        self._refusal = RequestError(400, sentence)
        return self._refusal

    def _refuse(self, refusal: RequestError) -> None:
        """Answer with a sentence, if nothing was answered yet, and end the connection."""
        active, self._headed = self._active, time.monotonic() - self._seconds
        if self.transport.is_closing():
            return
        is_answered = active is not None and active.response_complete and self._has_head and not self._is_whole
        if is_answered or (active is not None and active.response_started and not active.response_complete):
            self.transport.abort()
            return
        if active is not None:
            active.disconnected = True
        self.transport.write(_raw(refusal))
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, partial(self._answer, cycle, app))

    async def _answer(self, cycle: RequestResponseCycle, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        self._task = asyncio.current_task()
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:  # the client has left, or the service ends
            cycle.disconnected = True
            self.transport.abort()
        finally:
            if self._task is asyncio.current_task():
                self._task = None
        if cycle.response_started and not cycle.response_complete:  # the guard ended it when its time was over
            cycle.disconnected = True
            self.transport.abort()


def _raw(refusal: RequestError) -> bytes:
    body = refusal_body(refusal)
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers: Iterable[tuple[bytes, bytes]] = guarded(refusal.status, [*fields, (b"connection", b"close")])
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[refusal.status] + lines + b"\r\n" + body


async def _no_room(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer where every connection is busy with a request."""
    del scope, receive

    async def send_guarded(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = guarded(503, [*message["headers"], (b"connection", b"close")])
        await send(message)

    await refuse(send_guarded, RequestError(503, "too many requests at a time: try again in a moment"))
