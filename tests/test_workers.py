"""Work that is shared by the cores."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dmuh.machine import workers
from dmuh.machine.workers import over_cores


@pytest.fixture(autouse=True, params=[1, 2, 3, 8])
def cores(request, monkeypatch) -> int:
    monkeypatch.setattr(workers, "cores", lambda: request.param)
    return int(request.param)


def marked(n: int) -> np.ndarray:
    """How often each of n items was worked on."""
    seen = np.zeros(n, int)

    def work(first: int, last: int) -> None:
        seen[first:last] += 1

    over_cores(work, n)
    return seen


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 1000])
def test_every_item_is_worked_on_once(n):
    assert (marked(n) == 1).all()


def test_a_process_that_is_ending_does_its_work_alone(monkeypatch):
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(workers, "_threads", lambda: ended)
    assert (marked(1000) == 1).all()


def test_parts_are_worked_on_at_the_same_time(cores):
    if cores > (os.cpu_count() or 1):
        pytest.skip(f"this machine has fewer cores than {cores}")
    all_here = threading.Barrier(cores)
    over_cores(lambda _first, _last: all_here.wait(timeout=30), cores)
    assert not all_here.broken


@pytest.mark.parametrize("bad", [0, 99])
def test_an_error_in_any_part_reaches_the_caller_when_all_parts_are_over(bad):
    over: list[int] = []

    def work(first: int, last: int) -> None:
        if first <= bad < last:
            raise ValueError("bad")
        over.append(last - first)

    with pytest.raises(ValueError, match="bad"):
        over_cores(work, 100)
    assert len(over) == min(workers.cores(), 100) - 1


def test_threads_may_share_their_work_at_the_same_time():
    with ThreadPoolExecutor(8) as pool:
        assert all((seen == 1).all() for seen in pool.map(marked, range(50)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own():
    marked(100)
    child = os.fork()
    if child == 0:
        os._exit(0 if (marked(100) == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
