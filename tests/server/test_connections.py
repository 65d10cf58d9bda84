"""Who has to go when there are too many."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from functools import partial

import pytest
import uvicorn

from dmuh.server.http.connections import Connections, Stage
from dmuh.server.http.guard import Guard
from dmuh.server.http.protocol import HttpProtocol
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics

GET = b"GET /%s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Guest:
    """A connection that is as far as a test says."""

    def __init__(self, address: str = "a") -> None:
        self.address = address
        self.at = Stage.HEAD
        self.until = float("inf")
        self.ended = False

    def stage(self) -> Stage:
        return self.at

    def due(self) -> float:
        return self.until

    def abort(self) -> None:
        self.ended = True


def filled(*guests: Guest, most: int = 3, most_of_one: int = 3) -> Connections:
    connections = Connections(most, most_of_one)
    for guest in guests:
        assert connections.add(guest)
        connections.update(guest)
    return connections


def at(stage: Stage, address: str = "a") -> Guest:
    guest = Guest(address)
    guest.at = stage
    return guest


@pytest.mark.parametrize(("stages", "goes"), [
    ((Stage.IDLE, Stage.HEAD, Stage.HEAD), 1),
    ((Stage.WORK, Stage.IDLE, Stage.IDLE), 1),
    ((Stage.BODY, Stage.WORK, Stage.IDLE), 2),
    ((Stage.UNREAD, Stage.WORK, Stage.BODY), 2),
    ((Stage.WORK, Stage.WORK, Stage.UNREAD), 2),
    ((Stage.WORK, Stage.WORK, Stage.WORK), None),
])  # fmt: skip
def test_who_waits_longest_makes_room_and_who_is_worked_for_never_does(stages, goes):
    async def add():
        guests = [at(stage) for stage in stages]
        connections = filled(*guests)
        return connections.add(Guest()), [guest.ended for guest in guests], len(connections)

    room, ended, n = asyncio.run(add())
    assert room is (goes is not None)
    assert ended == [position == goes for position in range(3)]
    assert n == (3 if room else 4)


def test_one_address_makes_room_for_itself():
    async def add():
        first, second, third = Guest("b"), Guest("a"), Guest("a")
        connections = filled(first, second, third, most=9, most_of_one=2)
        connections.add(Guest("a"))
        return first.ended, second.ended, third.ended

    assert asyncio.run(add()) == (False, True, False)


def test_those_whose_time_is_over_go_and_are_forgotten():
    async def wait():
        late, other = Guest("b"), Guest()
        late.until = 0
        connections = filled(late, other)
        while not late.ended:
            await asyncio.sleep(0.01)
        connections.remove(other)
        connections.remove(other)
        return len(connections), connections._of_address

    assert asyncio.run(wait()) == (0, {})


@contextmanager
def serving(app, connections: Connections):
    """Serve an application in a thread; yields what connects to it."""
    opened = socket.create_server(("127.0.0.1", 0))
    guard = Guard(app, Limits(seconds=20), ServiceMetrics())
    config = uvicorn.Config(guard, http=partial(HttpProtocol, connections, 20, 1000), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    try:
        yield lambda: socket.create_connection(opened.getsockname(), timeout=20)
    finally:
        server.should_exit = True
        thread.join()


def test_where_all_are_worked_for_the_next_is_told_to_come_again():
    begun, left = threading.Semaphore(0), threading.Semaphore(0)
    free = threading.Event()

    async def app(scope, receive, send):
        begun.release()
        try:
            while scope["path"] == "/slow" and not free.is_set():
                await asyncio.sleep(0.01)
        finally:
            left.release()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with serving(app, Connections(2, 2)) as connect:
        first, second = connect(), connect()
        for own in (first, second):
            own.sendall(GET % b"slow")
            assert begun.acquire(timeout=20)
        with connect() as third:
            third.sendall(GET % b"quick")
            answer = third.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in answer
            assert b"too many requests at a time" in answer
        second.close()  # what is done for it ends
        assert left.acquire(timeout=20)
        with connect() as fourth:
            fourth.sendall(GET % b"quick")
            assert fourth.recv(65_536).startswith(b"HTTP/1.1 200 ")
        free.set()
        assert first.recv(65_536).startswith(b"HTTP/1.1 200 ")
        first.close()
