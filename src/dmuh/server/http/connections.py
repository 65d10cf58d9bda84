"""Connections: all open connections, the stage of each, and which one is closed when there are too many.

Anyone can open connections and send nothing. To refuse new ones then would help the attack. Instead the connection that
has waited longest for its client is closed, but never one whose request is being answered.
"""

import asyncio
import time
from enum import Enum
from typing import Protocol

_MOST = 512  # at a time
_MOST_OF_ONE = 384  # of one address, which may be a proxy's
_PATIENCE = 2.0  # seconds of an upload, or of the reading of an answer, before it may be closed like an idle one
_EVERY = 0.5  # seconds between two checks of all deadlines


class Stage(Enum):
    """What a connection waits for.

    HEAD    the client, for the head of a request
    BODY    the client, for the body of a request
    UNREAD  the client, to read the answer
    IDLE    the client, for the next request
    WORK    the service, which is answering a request
    """

    HEAD = 0
    BODY = 1
    UNREAD = 2
    IDLE = 3
    WORK = 4


class Connection(Protocol):
    """What `Connections` needs of a connection."""

    address: str

    def stage(self) -> Stage:
        """Return what it waits for."""

    def due(self) -> float:
        """Return the time at which it is closed if it still waits for the same."""

    def abort(self) -> None:
        """End it at once."""


class Connections:
    """The open connections of a service, no more than `most`, and `most_of_one` address."""

    def __init__(self, most: int = _MOST, most_of_one: int = _MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._stages: dict[Stage, dict[Connection, float]] = {stage: {} for stage in Stage}  # since when, oldest first
        self._stage_of: dict[Connection, Stage] = {}
        self._of_address: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._stage_of)

    def add(self, new: Connection) -> bool:
        """Register a connection, for which another may be closed; return whether there is room for it."""
        room = True
        if self._of_address.get(new.address, 0) >= self._most_of_one:
            room = self._end_one(new.address)
        elif len(self) >= self._most:
            room = self._end_one(None)
        self._of_address[new.address] = self._of_address.get(new.address, 0) + 1
        self._put(new, Stage.HEAD)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._close_overdue)
        return room

    def update(self, connection: Connection) -> None:
        """Note what a connection waits for now."""
        stage = connection.stage()
        if self._stage_of.get(connection, stage) is not stage:
            del self._stages[self._stage_of[connection]][connection]
            self._put(connection, stage)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        stage = self._stage_of.pop(connection, None)
        if stage is None:
            return
        del self._stages[stage][connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def _put(self, connection: Connection, stage: Stage) -> None:
        self._stage_of[connection] = stage
        self._stages[stage][connection] = time.monotonic()

    def _end_one(self, address: str | None) -> bool:
        """Close the connection, of one address or of any, that has waited longest; return whether there was one."""
        late, now = time.monotonic() - _PATIENCE, float("inf")
        for stage, before in (
            (Stage.HEAD, now), (Stage.BODY, late), (Stage.UNREAD, late), (Stage.IDLE, now), (Stage.BODY, now),
            (Stage.UNREAD, now),
        ):  # fmt: skip
            for connection, since in self._stages[stage].items():
                if since > before:
                    break  # those behind it have waited even less
                if address is None or connection.address == address:
                    self._end(connection)
                    return True
        return False

    def _end(self, connection: Connection) -> None:
        self.remove(connection)  # now, and not when the transport says so: its place is taken
        connection.abort()

    def _close_overdue(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        for connection in list(self._stage_of):
            self.update(connection)
            if connection.due() < now:
                self._end(connection)
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._close_overdue) if self._stage_of else None
