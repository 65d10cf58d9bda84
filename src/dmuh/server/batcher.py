"""Batcher: what concurrent requests ask for is worked on together, in a thread of its own, off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

from dmuh.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Gives items to `work` as many at a time as have come meanwhile, up to `most`.

    `work` returns one result per item; one that is an exception is raised where the item was asked for. Nobody waits
    for a batch to fill. More than `waiting` items are refused, so that a service that cannot keep up stays small.
    `seen` is told the size of each batch.

    An item whose asker gives up before its work began is not worked on. Of what `lasts`, such as a change, an asker
    cannot give up later than that: it is told what became of it, even after its time.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        most: int = 64,
        waiting: int = 1024,
        lasts: bool = False,
        seen: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._seen = seen
        self._most = most
        self._limit = waiting
        self._lasts = lasts
        self._waiting: dict[asyncio.Future[Result], Item] = {}  # in the order in which they came
        self._running = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"dmuh-{name}")

    async def ask(self, item: Item) -> Result:
        """Return the result of an item."""
        if len(self._waiting) >= self._limit:
            raise RequestError(503, "too many requests are waiting: try again in a moment")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[future] = item
        if not self._running:
            self._start()
        try:
            return await (asyncio.shield(future) if self._lasts else future)
        except asyncio.CancelledError:
            if future in self._waiting:
                del self._waiting[future]
                raise
            if not self._lasts:
                raise
        return await future

    def close(self) -> None:
        """End the thread when it has finished what it began."""
        self.thread.shutdown()

    def _start(self) -> None:
        futures = list(islice(self._waiting, self._most))
        items = [self._waiting.pop(future) for future in futures]
        self._running = True
        self._seen(len(items))
        running = asyncio.get_running_loop().run_in_executor(self.thread, self._work, items)
        running.add_done_callback(lambda done: self._finish(futures, done))

    def _finish(
        self, futures: list[asyncio.Future[Result]], done: "asyncio.Future[Sequence[Result | Exception]]"
    ) -> None:
        self._running = False
        if self._waiting:
            self._start()  # first: the thread goes on while results are handed out
        failed = done.exception()
        results = [failed] * len(futures) if failed is not None else done.result()
        for future, result in zip(futures, results, strict=True):
            if future.done():  # nobody waits for it any more
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
