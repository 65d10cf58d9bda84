"""Connections: who is connected, how far each has come, and who has to go when others need the room.

Anyone can open connections and say nothing. To refuse newcomers then would serve the attack: the one that has waited
longest for its other side goes instead, and one whose request is being worked on never does.
"""

import asyncio
import time
from enum import Enum
from typing import Protocol

_MOST = 512  # at a time
_MOST_OF_ONE = 384  # of one address, which may be a proxy's
_PATIENCE = 2.0  # seconds that an upload or the reader of an answer may take before it makes room like one that idles
_EVERY = 0.5  # seconds between two looks at all deadlines


class Stage(Enum):
    """How far a connection has come.

    HEAD    the head of a request has not come, or not all of it
    BODY    the rest of the request has not come
    UNREAD  the answer was not taken
    IDLE    nothing is asked
    WORK    a request is being answered
    """

    HEAD = 0
    BODY = 1
    UNREAD = 2
    IDLE = 3
    WORK = 4


class Connection(Protocol):
    """What is needed of a connection."""

    address: str

    def stage(self) -> Stage:
        """Return how far it has come."""

    def due(self) -> float:
        """Return until when it may stay as it is."""

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
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._stage_of)

    def add(self, new: Connection) -> bool:
        """Take in a connection, in whose favour another may have to go; return whether there is room for it."""
        room = True
        if self._of_address.get(new.address, 0) >= self._most_of_one:
            room = self._end_one(new.address)
        elif len(self) >= self._most:
            room = self._end_one(None)
        self._of_address[new.address] = self._of_address.get(new.address, 0) + 1
        self._put(new, Stage.HEAD)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_EVERY, self._look)
        return room

    def update(self, connection: Connection) -> None:
        """Note how far a connection has come."""
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
        """End the connection, of an address or of any, that has waited longest; return whether there was one."""
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
        self.remove(connection)  # now, not when the transport says so: its place is taken
        connection.abort()

    def _look(self) -> None:
        """End the connections that are past their time."""
        now = time.monotonic()
        for connection in list(self._stage_of):
            self.update(connection)
            if connection.due() < now:
                self._end(connection)
        self._looking = asyncio.get_running_loop().call_later(_EVERY, self._look) if self._stage_of else None
