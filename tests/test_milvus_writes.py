"""What a check for known ids asks of a server that is behind, and what it compares itself, give together the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmuh.index.milvus_writes import Writes

SECOND = 1000 << 18
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "lost", "time"]), st.integers(0, 9), st.integers(0, 3 * SECOND)),
    max_size=30,
)


class Server:
    """Takes writes at once, and shows a read what was written up to the timestamp that it names, not more."""

    def __init__(self):
        self.clock, self.log = 1000 * SECOND, []

    def write(self, kind, id_):
        self.clock += 1
        self.log.append((self.clock, kind, id_))
        return self.clock

    def now(self):
        self.clock += 1
        return self.clock

    def shown(self, since):
        found = set()
        for when, kind, id_ in self.log:
            if when <= since:
                (found.add if kind == "add" else found.discard)(id_)
        return found


def known(writes, server):
    writes.resolved(server.now)
    since, recent = writes.settled()
    return server.shown(since) | set(recent.tolist())


@given(STEPS)
def test_a_check_and_a_read_see_what_was_written(steps):
    server = Server()
    server.write("add", 0)
    writes, there = Writes(server.now()), {0}
    for kind, id_, pause in steps:
        if kind == "add" and id_ not in there:
            writes.added(server.write("add", id_), np.array([id_]))
            there.add(id_)
        elif kind == "remove" and id_ in there:
            server.write("remove", id_)
            writes.changed(server.now())
            there.discard(id_)
        elif kind == "lost" and id_ not in there:  # it got there, and the answer was lost
            server.write("add", id_)
            writes.doubt()
            there.add(id_)
        else:
            server.clock += pause
        assert known(writes, server) == there
        assert server.shown(writes.last) == there


def test_what_is_older_than_two_seconds_is_left_to_the_server():
    writes = Writes(SECOND)
    for n in range(10):
        writes.added((n + 2) * SECOND, np.array([n]))
    since, recent = writes.settled()
    assert since == 9 * SECOND
    assert recent.tolist() == [8, 9]
    assert len(writes._recent) == 2


def test_an_engine_without_timestamps_is_believed():
    writes = Writes(0)
    writes.added(0, np.array([1]))
    writes.changed(0)
    assert (writes.last, writes.settled()[0], writes.settled()[1].tolist()) == (1, 1, [])


def test_what_is_in_doubt_stays_so_while_the_server_does_not_answer():
    def away():
        raise OSError("it is away")

    writes = Writes(5)
    writes.resolved(away)  # nothing is in doubt, so nothing is asked
    writes.doubt()
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            writes.resolved(away)
    writes.resolved(lambda: 9)
    assert writes.last == 9
