"""Clients that mean harm and have no token: each costs little, and others are served meanwhile."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx2
import pytest
from serving import Server, picture

pytestmark = pytest.mark.long

POST = b"POST /api/search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: image/png\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
MANY = 600  # more than the service takes


@pytest.fixture(scope="module")
def server(model, photos, tmp_path_factory) -> Iterator[Server]:
    """A service whose requests may take three seconds, over images one of which is large."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "photos").mkdir()
    (folder / "photos" / "large.png").write_bytes(picture("PNG", (2000, 2000)))
    (folder / "photos" / "small.png").write_bytes(picture("PNG"))
    with Server(
        model, "--images", folder / "photos", "--state", folder / "state", "--seconds", "3", afresh=True
    ) as running:
        yield running


def connect(server: Server, address: str = "127.0.0.1") -> socket.socket:
    made = socket.socket()
    made.settimeout(30)
    made.bind((address, 0))
    made.connect(("127.0.0.1", int(server.address.rsplit(":", 1)[1])))
    return made


def answer(connection: socket.socket) -> bytes:
    """Read until the other side ends the connection, however it does."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def is_cut_off(connection: socket.socket, data: bytes, times: int, pause: float = 0) -> bool:
    """Send something again and again; return whether the other side ends the connection meanwhile."""
    try:
        for _ in range(times):
            connection.sendall(data)
            time.sleep(pause)
    except ConnectionError:
        return True
    return False


def memory(server: Server) -> int:
    """Megabytes that the service takes."""
    with open(f"/proc/{server.process.pid}/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1000


@contextmanager
def crowd(server: Server, begun: Callable[[int], bytes], address: Callable[[int], str] = lambda _: "127.0.0.1"):
    """Many connections, each of which has said something and says no more."""
    with ExitStack() as stack:
        made = []
        for n in range(MANY):
            made.append(stack.enter_context(connect(server, address(n))))
            with suppress(ConnectionError):
                made[-1].sendall(begun(n))
        yield made


def serves(server: Server) -> None:
    """See that a client gets in, with a new connection each time, and is served."""
    for _ in range(5):
        assert httpx2.get(f"{server.address}/api/about").status_code == 200
        found = httpx2.post(f"{server.address}/api/search", content=picture(), headers={"content-type": "image/png"})
        assert found.status_code == 200


@pytest.mark.parametrize("begun", [
    b"", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n", POST + b"content-length: 999\r\n\r\nx",
    POST.replace(b"image/png", b"text/plain") + b"content-length: 999\r\n\r\nx", CHUNKED + b"5\r\nab",
    b"POST /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
], ids=["nothing", "head", "body", "answered", "chunk", "not found", "idle"])  # fmt: skip
@pytest.mark.parametrize("address", [lambda _: "127.0.0.1", lambda n: f"127.0.0.{2 + n % 200}"], ids=["one", "many"])
def test_those_who_wait_make_room_for_those_who_ask(server, begun, address):
    with crowd(server, lambda _: begun, address):
        serves(server)


def test_readers_who_do_not_read_make_room(server):
    with crowd(server, lambda _: b"GET /api/images/1/file HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"):
        time.sleep(2.5)  # so long they may take
        serves(server)
        assert memory(server) < 700


def test_trailers_are_refused(server):
    with connect(server) as connection:
        connection.sendall(CHUNKED + b"1\r\nx\r\n0\r\nx-more: y\r\n\r\n")
        assert b"400 Bad Request" in (found := answer(connection))
        assert b"headers may not follow the body" in found


@pytest.mark.parametrize("start", [CHUNKED + b"1\r\nx\r\n0\r\nx-more: ", CHUNKED + b"1;", POST + b"x-more: ", b"GET /"])
def test_bytes_without_end_that_bring_no_body_are_cut_off(server, start):
    with connect(server) as connection:
        connection.sendall(start)
        assert is_cut_off(connection, b"y" * 65_536, 600)
    serves(server)


def test_a_body_in_tiny_chunks_is_cut_off(server):
    with connect(server) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        assert is_cut_off(connection, b"1\r\nx\r\n" * 10_000, 4000)


def test_many_headers_are_refused(server):
    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"a: b\r\n" * 100 + b"\r\n")
        assert b"a request may have 100 headers at most" in answer(connection)


@pytest.mark.parametrize("head", [
    b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"content-length: 5\r\ncontent-length: 6\r\n",
    b"host: localhost\r\n", b"content-length: -1\r\n", b"transfer-encoding: chunked, identity\r\n",
])  # fmt: skip
def test_heads_that_two_may_read_in_two_ways_are_refused(server, head):
    with connect(server) as connection:
        connection.sendall(POST + head + b"connection: close\r\n\r\n0\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("kind", [b"image/png", b"text/plain"])
def test_a_request_that_was_answered_ends_soon(server, kind):
    """The rest of it may come, but not for ever, however steadily."""
    with connect(server) as connection:
        connection.sendall(POST.replace(b"image/png", kind) + b"content-length: 9000\r\n\r\n")
        assert is_cut_off(connection, b"x", 1000, 0.02)


def test_an_answer_that_nobody_reads_is_given_up(server):
    with connect(server) as connection:
        connection.sendall(b"GET /api/images/1/file HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert is_cut_off(connection, b"\r\n", 1000, 0.02)


def test_empty_lines_do_not_keep_a_connection(server):
    with connect(server) as connection:
        assert is_cut_off(connection, b"\r\n", 1000, 0.02)


def test_uploads_take_so_much_memory_together(server):
    """Those that have come longest and are not whole are given up, with a sentence."""
    before = memory(server)
    with ExitStack() as stack:
        made = [stack.enter_context(connect(server)) for _ in range(20)]
        for connection in made:
            with suppress(OSError):  # given up already, on a busy machine
                connection.sendall(POST + b"content-length: 16000000\r\n\r\n" + bytes(15_900_000))
        assert memory(server) - before < 350
        answers = [answer(connection) for connection in made[:8]]
    found = next(text for text in answers if text.startswith(b"HTTP/1.1 503 "))  # others may take too long
    assert b"retry-after: 1" in found
    assert b"too much is being uploaded" in found
    serves(server)


def test_requests_without_end_on_one_connection_are_answered_or_refused(server):
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 2000)
        connection.shutdown(socket.SHUT_WR)
        assert b"HTTP/1.1 400 " in answer(connection)
    serves(server)
