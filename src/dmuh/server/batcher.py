"""Batcher: items of concurrent requests are worked on together, in one thread beside the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

from dmuh.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Gives items to `work`, up to `most` at a time: all that came while it worked on those before.

    `work` returns one result per item; an exception among them is raised where that item was submitted. No item waits
    for a batch to fill. If more than `waiting` items wait, further ones are refused, which bounds the memory of a
    service that cannot keep up. `on_batch` is called with the size of each batch.

    An item whose submitter is cancelled before its work began is dropped. With `must_finish`, as for changes of the
    catalogue, a submitter that is cancelled later still waits for the result and gets it.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        most: int = 64,
        waiting: int = 1024,
        must_finish: bool = False,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._on_batch = on_batch
        self._most = most
        self._limit = waiting
        self._must_finish = must_finish
        self._waiting: dict[asyncio.Future[Result], Item] = {}  # in the order of submission
        self._running = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"dmuh-{name}")

    async def submit(self, item: Item) -> Result:
        """Have an item worked on; return its result."""
        if len(self._waiting) >= self._limit:
            raise RequestError(503, "too many requests are waiting: try again in a moment")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[future] = item
        if not self._running:
            self._start()
        try:
            return await (asyncio.shield(future) if self._must_finish else future)
        except asyncio.CancelledError:
            if future in self._waiting:
                del self._waiting[future]
                raise
            if not self._must_finish:
                raise
        return await future

    def close(self) -> None:
        """End the thread when it has finished what it began."""
        self.thread.shutdown()

    def _start(self) -> None:
        futures = list(islice(self._waiting, self._most))
        items = [self._waiting.pop(future) for future in futures]
        self._running = True
        self._on_batch(len(items))
        running = asyncio.get_running_loop().run_in_executor(self.thread, self._work, items)
        running.add_done_callback(lambda done: self._finish(futures, done))

    def _finish(
        self, futures: list[asyncio.Future[Result]], done: "asyncio.Future[Sequence[Result | Exception]]"
    ) -> None:
        self._running = False
        if self._waiting:
            self._start()  # first, so that the thread works while the results are handed out
        failed = done.exception()
        results = [failed] * len(futures) if failed is not None else done.result()
        for future, result in zip(futures, results, strict=True):
            if future.done():  # its submitter was cancelled
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
