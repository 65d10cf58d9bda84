"""The socket that a service listens on, and the uvicorn server behind it."""

import logging
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

from dmuh.errors import ConfigError
from dmuh.server.garbage import leave_to_stay
from dmuh.server.http.connections import Connections
from dmuh.server.http.guard import Guard
from dmuh.server.http.protocol import HttpProtocol

_BUFFER = 2**18  # bytes of the system's buffers per connection and direction; else megabytes per idle client
_ACCEPTED = 16  # connections at a time: the event loop accepts one from each copy of the socket before other work
_TURN = 0.0005  # seconds that a thread keeps the interpreter while another wants it; ten times that is usual
_FILES = 4096  # that may be open; 1024 are usual


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, before the slow start of the service; port 0 takes any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # connections take them over
            opened.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER)
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


def run(app: Guard, opened: socket.socket, seconds: float, ready: Callable[[], None]) -> None:
    """Serve until the process is told to stop; `ready` is called when requests are answered.

    `seconds` are those within which the head of a request has to come.
    """
    protocol: Any = partial(HttpProtocol, Connections(), seconds, app.limits.bytes)
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, timeout_graceful_shutdown=5,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else whoever sends garbage fills the log
    _allow_files()
    sys.setswitchinterval(_TURN)  # else requests that arrive wait for the thread that searches, and it for them
    server = _Server(config, ready)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[opened, *(opened.dup() for _ in range(_ACCEPTED - 1))])


def _allow_files() -> None:
    """Raise the limit of open files: each connection needs one, and one more for the file that it is sent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Server(uvicorn.Server):
    """A server that calls `ready` once it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        leave_to_stay()
        self._ready()
