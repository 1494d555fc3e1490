"""Requests that several threads need at the same time, sent as one.

    thread 1  queue a  [ send a          ]
    thread 2     queue b  .......        [ send b, c ]
    thread 3        queue c  ....                     (done already)

One request is under way at a time. The next thread sends all that was queued meanwhile. Nothing waits for
company: a single thread sends at once, and each request takes what came during the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Queued(Generic[Key, Item, Result]):
    """An item, and its outcome when its request is done."""

    key: Key
    item: Item
    size: int
    outcome: Future[Result | None] = field(default_factory=Future)


class SharedRequests(Generic[Key, Item, Result]):
    """`send` performs one request and returns the result or the error of items by their keys, nothing of
    those that have none; what it raises is the error of all. A request has items of different keys, and of
    `max_size` together at most, unless a single one is larger."""

    def __init__(
        self, send: Callable[[Sequence[Item]], Mapping[Key, Result | Exception]], *, max_size: int
    ) -> None:
        self._send = send
        self._max_size = max_size
        self._queue: list[Queued[Key, Item, Result]] = []
        self._changing = threading.Lock()
        self._sending = threading.Lock()

    def perform(self, key: Key, item: Item, *, size: int = 1) -> Result | None:
        """Queue an item and wait until its request is done; its result. Raises its error."""
        return self.finish(self.queue(key, item, size=size))

    def queue(self, key: Key, item: Item, *, size: int) -> Queued[Key, Item, Result]:
        queued: Queued[Key, Item, Result] = Queued(key, item, size)
        with self._changing:
            self._queue.append(queued)
        return queued

    def finish(self, queued: Queued[Key, Item, Result]) -> Result | None:
        """Send what is queued, unless another thread has sent this item; its result. Raises its error."""
        while not queued.outcome.done():
            with self._sending:
                if not queued.outcome.done():
                    self._send_portion(self._portion())
        return queued.outcome.result()

    def _portion(self) -> Sequence[Queued[Key, Item, Result]]:
        """Take the items of the next request from the queue, oldest first."""
        taken: dict[Key, Queued[Key, Item, Result]] = {}
        rest: list[Queued[Key, Item, Result]] = []
        size = 0
        with self._changing:
            for queued in self._queue:
                fits = not taken or size + queued.size <= self._max_size
                if queued.key in taken or not fits:
                    rest.append(queued)
                    continue
                taken[queued.key] = queued
                size += queued.size
            self._queue = rest
        return list(taken.values())

    def _send_portion(self, portion: Sequence[Queued[Key, Item, Result]]) -> None:
        found: Mapping[Key, Result | Exception]
        try:
            found = self._send([queued.item for queued in portion])
        except Exception as error:
            found = {queued.key: error for queued in portion}
        for queued in portion:
            result = found.get(queued.key)
            if isinstance(result, Exception):
                queued.outcome.set_exception(result)
            else:
                queued.outcome.set_result(result)
