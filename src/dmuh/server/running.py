"""The socket a service listens on, and the server behind it."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dmuh.errors import ConfigError
from dmuh.server.guard import App

_HEAD_BYTES = 65_536  # that the head of a request may have
_CONNECTIONS = 512  # at a time


def bind(host: str, port: int) -> socket.socket:
    """Take an address before the work begins that it is for; port 0 takes any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(address)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on port {port} of {host}: {error.strerror}; see --port, --host") from error
    return opened


def address_of(opened: socket.socket) -> str:
    """Return the address under which a browser finds the service."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: App, opened: socket.socket, seconds: float, ready: Callable[[], None]) -> None:
    """Serve until the process is told to stop; `ready` is called when requests are answered.

    `seconds` are those within which the head of a request has to come.
    """
    protocol: Any = partial(_Protocol, seconds)
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, limit_concurrency=_CONNECTIONS, timeout_keep_alive=15, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = _Server(config, ready)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[opened])


class _Server(uvicorn.Server):
    """A server that tells when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is here stays: to look through it again and again would hold requests up for 100 ms
        self._ready()


class _Protocol(HttpToolsProtocol):
    """HTTP for clients that may be slow or greedy on purpose: the head of a request must come soon, and be short."""

    def __init__(self, seconds: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seconds = seconds
        self._deadline: asyncio.TimerHandle | None = None
        self._head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._deadline is None:
            self._head = 0
        elif self._head > _HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
