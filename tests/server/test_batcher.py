"""Items of concurrent requests are worked on together, and each request gets its own."""

import asyncio
import threading

import pytest

from dmuh.errors import RequestError
from dmuh.server.batcher import Batcher


def test_what_comes_meanwhile_is_worked_on_together():
    sizes, threads = [], set()
    gate = threading.Event()

    def work(items):
        threads.add(threading.current_thread().name)
        if len(sizes) == 1:
            gate.wait(10)
        return [item * 10 for item in items]

    batcher = Batcher("test", work, most=6, on_batch=sizes.append)

    async def ask():
        tasks = [asyncio.create_task(batcher.submit(n)) for n in range(15)]
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask()) == [n * 10 for n in range(15)]
    assert sizes == [1, 6, 6, 2]
    assert len(threads) == 1
    assert threads != {threading.current_thread().name}
    batcher.close()


def test_one_items_error_is_its_own():
    batcher = Batcher("test", lambda items: [ValueError(str(n)) if n % 2 else n for n in items])

    async def ask():
        return await asyncio.gather(*(batcher.submit(n) for n in range(4)), return_exceptions=True)

    first, second, third, fourth = asyncio.run(ask())
    assert (first, third) == (0, 2)
    assert (repr(second), repr(fourth)) == ("ValueError('1')", "ValueError('3')")
    batcher.close()


def test_work_that_fails_fails_for_all_and_goes_on():
    calls = []

    def work(items):
        calls.append(items)
        if len(calls) == 1:
            raise OSError("no space")
        return items

    batcher = Batcher("test", work)

    async def ask():
        with pytest.raises(OSError, match="no space"):
            await batcher.submit(1)
        return await batcher.submit(2)

    assert asyncio.run(ask()) == 2
    batcher.close()


def test_too_many_waiting_are_refused_and_those_who_left_are_passed_over():
    gate = threading.Event()

    def work(items):
        gate.wait(10)
        return items

    batcher = Batcher("test", work, most=1, waiting=2)

    async def ask():
        tasks = [asyncio.create_task(batcher.submit(n)) for n in range(3)]  # one is worked on, two wait
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="too many requests are waiting") as caught:
            await batcher.submit(3)
        tasks[1].cancel()
        await asyncio.sleep(0)
        gate.set()
        return caught.value.status, await asyncio.gather(tasks[0], tasks[2])

    assert asyncio.run(ask()) == (503, [0, 2])
    batcher.close()


def gated(**options):
    """A batcher whose work begins when it is told to, what it has begun, and what tells it to go on."""
    begun, gate = [], threading.Event()

    def work(items):
        begun.extend(items)
        gate.wait(10)
        return items

    return Batcher("test", work, most=1, **options), begun, gate


@pytest.mark.parametrize("must_finish", [True, False])
def test_what_was_given_up_before_it_began_is_not_worked_on(must_finish):
    batcher, begun, gate = gated(must_finish=must_finish)

    async def ask():
        tasks = [asyncio.create_task(batcher.submit(n)) for n in range(4)]
        await asyncio.sleep(0)
        for task in tasks[1:3]:
            task.cancel()
        await asyncio.gather(*tasks[1:3], return_exceptions=True)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third, fourth = asyncio.run(ask())
    assert (first, fourth) == (0, 3)
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, asyncio.CancelledError)
    assert begun == [0, 3]
    batcher.close()


def test_what_lasts_and_has_begun_is_waited_for_beyond_the_time():
    batcher, _, gate = gated(must_finish=True)

    async def ask():
        async def in_time():
            async with asyncio.timeout(0.01):
                return await batcher.submit(7)

        task = asyncio.create_task(in_time())
        await asyncio.sleep(0.1)
        assert not task.done()
        gate.set()
        return await task

    assert asyncio.run(ask()) == 7
    batcher.close()


def test_what_does_not_last_is_left_at_once():
    batcher, _, gate = gated()

    async def ask():
        task = asyncio.create_task(batcher.submit(7))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.set()
        return task.cancelled()

    assert asyncio.run(ask())
    batcher.close()
