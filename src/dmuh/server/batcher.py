"""Batcher: what concurrent requests ask for is worked on together, in a thread of its own, off the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from dmuh.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Gives items to `work` as many at a time as have come meanwhile, up to `most`.

    `work` returns one result an item; one that is an exception is raised where the item was asked for. Nobody waits for
    a batch to fill. More than `waiting` items are refused, so that a service that cannot keep up stays small. `seen` is
    told the size of each batch.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        most: int = 64,
        waiting: int = 1024,
        seen: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._seen = seen
        self._most = most
        self._limit = waiting
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._running = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"dmuh-{name}")

    async def ask(self, item: Item) -> Result:
        """Return the result of an item."""
        if len(self._waiting) >= self._limit:
            raise RequestError(503, "too many requests are waiting: try again in a moment")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._running:
            self._start()
        return await future

    def close(self) -> None:
        """End the thread when it has finished what it began."""
        self.thread.shutdown()

    def _start(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        self._running = True
        self._seen(len(batch))
        items = [item for item, _ in batch]
        running = asyncio.get_running_loop().run_in_executor(self.thread, self._work, items)
        running.add_done_callback(lambda done: self._finish([future for _, future in batch], done))

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
