"""Guard: the checks that every request passes before its route, and the headers of every answer.

A page of someone else may not use the service through a visitor's browser: the Host must be a name of the service, so
that another name that resolves to this address (DNS rebinding) does not help, and the Origin must be the service
itself. If other machines can reach the service, a token is required.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from dmuh.errors import RequestError
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics

log = logging.getLogger(__name__)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "dmuh_session"
PAGE_FILES = "/page/"
_OPEN = {"/", "/icon.svg", "/healthz"}  # these, and the files of the page, show nothing of the collection
_SINGLE = {b"host", b"origin", b"authorization", b"content-length", b"content-type", b"transfer-encoding"}
_CLIENTS = 10_000  # whose requests are counted at a time
_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }.items()
]


class Guard:
    """An ASGI application around another, which only gets requests that pass the checks."""

    def __init__(self, app: App, limits: Limits, metrics: ServiceMetrics) -> None:
        self._app = app
        self.limits = limits
        self._metrics = metrics
        self._names = {"localhost", limits.host.lower(), *(name.lower() for name in limits.names)}
        self._secrets = () if limits.token is None else (_hashed(limits.token), _hashed(session_of(limits.token)))
        self._budgets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and since when

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a sentence."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = guarded(status, message.get("headers", ()))
            await send(message)

        try:
            refusal = await self._answer(scope, receive, send_guarded)
            if refusal is not None and not status:  # else the connection is closed in the middle of the answer
                await refuse(send_guarded, refusal)
        finally:
            self._metrics.answered(scope, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RequestError | None:
        """Pass a request on; return why it is refused, or None."""
        seconds = self.limits.seconds
        try:
            self._check(scope)
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, send)
        except RequestError as error:
            return error
        except TimeoutError:
            log.warning("a request took longer than %g s", seconds)
            return RequestError(503, f"the request took longer than {seconds:g} seconds")
        except Exception:
            log.exception("a request failed")
            return RequestError(500, "the service failed, which is a mistake of its own; its log says more")
        return None

    def _check(self, scope: Scope) -> None:
        """Raise what is wrong with a request before its body is read."""
        headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            if name in headers and name in _SINGLE:  # a proxy in front may have checked the other one
                raise RequestError(400, f"a request has one {name.decode().title()} header, got several")
            headers[name] = value.decode("latin-1")
        host = headers.get(b"host", "").lower()
        if not self._is_ours(host):
            raise RequestError(403, "this host name is not the service's: allow it by dmuh serve --allow-host")
        is_open = scope["path"] in _OPEN or scope["path"].startswith(PAGE_FILES)  # anyone may link to these
        foreign = headers.get(b"origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")
        if foreign or (not is_open and headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin")):
            raise RequestError(403, "requests from the pages of others are not answered")
        self._count(scope)
        if not is_open and self._secrets and not self._has_token(headers):
            raise RequestError(401, "a token is needed: send it as Authorization: Bearer TOKEN")

    def _is_ours(self, authority: str) -> bool:
        """Return whether a Host header names this service: by a known name, or by an address, which needs no DNS."""
        name, address = _host(authority)
        if address is None:
            return name in self._names
        return address.is_loopback or not is_loopback(self.limits.host)

    def _count(self, scope: Scope) -> None:
        """Count one request of a client; refuse it if the client has none left."""
        rate = self.limits.rate
        if not rate:
            return
        client = scope["client"][0] if scope.get("client") else ""
        now = time.monotonic()
        left, since = self._budgets.pop(client, (2 * rate, now))
        left = min(2 * rate, left + (now - since) * rate)
        self._budgets[client] = (max(left - 1, 0), now)
        if len(self._budgets) > _CLIENTS:
            self._budgets.popitem(last=False)
        if left < 1:
            raise RequestError(429, f"more than {rate:g} requests a second: try again in a moment")

    def _has_token(self, headers: dict[bytes, str]) -> bool:
        """Return whether a request shows the token, or the cookie that was got by it, compared in constant time."""
        shown = headers.get(b"authorization", "")
        cookies = (part.strip().partition("=") for part in headers.get(b"cookie", "").split(";"))
        given = shown[7:] if shown[:7].lower() == "bearer " else next((v for k, _, v in cookies if k == COOKIE), "")
        # with both secrets, whichever was shown
        matches = [hmac.compare_digest(_hashed(given), secret) for secret in self._secrets]
        return any(matches)


def session_of(token: str) -> str:
    """Return the cookie that stands for the token in a browser; the token cannot be computed from it."""
    return hmac.digest(token.encode(), b"dmuh session", "sha256").hex()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


@lru_cache(256)  # few are sent again and again
def _host(authority: str) -> tuple[str | None, _Address | None]:
    """Return the name in a Host header, and the address that it is, None for what there is not."""
    try:
        name = (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return None, None
    return name, _address(name)


def _address(name: str) -> _Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def guarded(status: int, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer with those that every answer has."""
    fields = list(headers)
    names = {name for name, _ in fields}
    if b"cache-control" not in names:
        fields.append((b"cache-control", b"no-store"))
    if status in (429, 503) and b"retry-after" not in names:
        fields.append((b"retry-after", b"1"))
    return fields + _HEADERS


async def refuse(send: Send, refusal: RequestError) -> None:
    """Answer with the sentence that says what was wrong."""
    body = refusal_body(refusal)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refusal_body(refusal: RequestError) -> bytes:
    """Return the JSON of a refusal."""
    return json.dumps({"error": str(refusal)}).encode()
