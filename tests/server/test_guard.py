"""What every request has to pass."""

import asyncio
import hmac

import httpx2
import pytest
from starlette.testclient import TestClient

from dmuh.errors import RequestError
from dmuh.server.http import guard
from dmuh.server.http.guard import Guard, is_loopback, session_of
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics

TOKEN = "a token of some length"


async def echo(scope, receive, send):
    """An application that answers, takes its time or fails, as its path says."""
    if scope["path"] == "/slow":
        await asyncio.sleep(10)
    if scope["path"] == "/fail":
        raise ValueError("at /home/someone/secret.py, line 3")
    if scope["path"] == "/busy":
        raise RequestError(503, "busy")
    if scope["path"] == "/refuse":
        raise RequestError(418, "no coffee")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"well"})


def client(asked: str = "127.0.0.1:8000", **limits) -> TestClient:
    return TestClient(Guard(echo, Limits(**limits), ServiceMetrics()), base_url=f"http://{asked}")


def status(own: TestClient, path: str = "/api/x", method: str = "GET", **headers: str) -> int:
    return own.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    ).status_code


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "localhost:9999", "[::1]:8000", "LocalHost"]
)
def test_the_services_own_names_are_answered(host):
    assert status(client(), host=host) == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "192.168.0.7", "",
                                  "[::1", "127.0.0.1.evil.example", "0x7f000001"])  # fmt: skip
def test_a_name_that_is_made_to_point_here_is_refused(host):
    answer = client().get("/api/x", headers={"host": host})
    assert answer.status_code == 403
    assert "--allow-host" in answer.json()["error"]
    assert status(client(), "/", host=host) == 403


def test_names_can_be_allowed_and_addresses_of_the_machine_are():
    assert status(client(names=("photos.example",)), host="photos.example") == 200
    assert status(client(names=("photos.example",)), host="other.example") == 403
    everywhere = client(host="0.0.0.0", token=TOKEN)
    assert status(everywhere, "/", host="192.168.0.7:8000") == 200
    assert status(everywhere, "/", host="evil.example") == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000", "[", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_requests_of_other_pages_are_refused(origin, method):
    assert status(client(), method=method, origin=origin) == 403


def test_requests_of_the_own_page_are_answered():
    for origin in ("http://127.0.0.1:8000", "https://127.0.0.1:8000"):  # the latter behind a proxy
        assert status(client(), method="DELETE", origin=origin) == 200
    assert status(client(), sec_fetch_site="same-origin") == 200
    assert status(client(), sec_fetch_site="none") == 200
    for other in ("cross-site", "same-site"):
        assert status(client(), method="DELETE", sec_fetch_site=other) == 403
        assert status(client(), sec_fetch_site=other) == 403
        assert status(client(), "/", sec_fetch_site=other) == 200  # a link to the page


def test_a_token_has_to_be_shown():
    own = client(token=TOKEN)
    for path in ("/api/images", "/metrics", "/openapi.json", "/anything", "/pages"):
        answer = own.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/", "/page/page.css", "/page/main.js", "/healthz"):
        assert status(own, path) == 200
    assert status(own, authorization=f"Bearer {TOKEN}") == 200
    assert status(own, authorization=f"bearer {TOKEN}") == 200
    assert status(own, cookie=f"a=b; dmuh_session={session_of(TOKEN)}") == 200
    for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer ", TOKEN, "Bearer é"):
        assert own.get("/api/x", headers={"authorization": wrong.encode()}).status_code == 401
    assert status(own, cookie=f"dmuh_session={session_of('another')}") == 401


def test_the_token_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda *pair: compared.append(pair) or real(*pair))
    status(client(token=TOKEN), authorization="Bearer x")
    assert len(compared) == 2
    assert {len(one) for pair in compared for one in pair} == {32}  # hashes: their length tells nothing


real = hmac.compare_digest


def test_a_client_has_so_many_requests_a_second(monkeypatch):
    now = 0.0
    monkeypatch.setattr(guard.time, "monotonic", lambda: now)
    own = client(rate=3)
    assert [status(own) for _ in range(8)] == [200] * 6 + [429] * 2
    answer = own.get("/api/x")
    assert answer.headers["retry-after"] == "1"
    assert "3 requests a second" in answer.json()["error"]
    now = 1.0
    assert [status(own) for _ in range(4)] == [200] * 3 + [429]
    now = 1000.0
    assert [status(own) for _ in range(7)] == [200] * 6 + [429]


def test_the_clients_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(guard, "_CLIENTS", 5)
    own = Guard(echo, Limits(rate=3), ServiceMetrics())
    for n in range(50):
        own._count({"client": (f"10.0.0.{n}", 1)})
    assert len(own._budgets) == 5


def test_a_request_has_so_much_time():
    answer = client(seconds=0.05).get("/slow")
    assert (answer.status_code, answer.json()) == (503, {"error": "the request took longer than 0.05 seconds"})


def test_errors_show_no_path_and_no_traceback(caplog):
    answer = client().get("/fail")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret.py" in caplog.text  # the log has it
    assert client().get("/refuse").json() == {"error": "no coffee"}


def test_every_answer_has_the_headers_that_keep_a_browser_safe():
    for own, path in (
        (client(), "/"),
        (client(), "/fail"),
        (client(token=TOKEN), "/api/x"),
        (client("evil.example"), "/"),
    ):
        headers = own.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
    ("0.0.0.0", False), ("192.168.0.7", False), ("::", False), ("example.org", False),
])  # fmt: skip
def test_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-length"])
def test_a_header_that_decides_something_comes_once(name):
    values = {
        "host": "127.0.0.1",
        "origin": "http://127.0.0.1:8000",
        "authorization": "Bearer x",
        "content-length": "0",
    }
    pairs = [(name, values[name]), (name, values[name])]
    if name != "host":
        pairs.append(("host", "127.0.0.1:8000"))
    answer = client().get("/api/x", headers=httpx2.Headers(pairs))
    assert answer.status_code == 400
    assert answer.json() == {"error": f"a request has one {name.title()} header, got several"}


def test_refusals_that_pass_say_when_to_come_again():
    for own, path in ((client(seconds=0.01), "/slow"), (client(), "/busy")):
        answer = own.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["cache-control"] == "no-store"
