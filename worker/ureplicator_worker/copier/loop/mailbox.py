"""Events from threads to the copier's loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

E = TypeVar("E")


class Mailbox(Generic[E]):
    """Any thread posts; the loop takes. `wake` ends the loop's wait and may be called by any thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._events: deque[E] = deque()

    def post(self, event: E) -> None:
        self._events.append(event)
        self._wake()

    def take(self) -> Iterator[E]:
        """The events posted so far, in order; those posted meanwhile are left for the next turn."""
        for _ in range(len(self._events)):
            yield self._events.popleft()
