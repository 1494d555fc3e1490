"""Things that the tests of one folder share: started by the first that needs one, ended behind the last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

T = TypeVar("T")


class Shared:
    """Started things, by what starts them."""

    def __init__(self) -> None:
        self._started: dict[Callable[[], AbstractContextManager[Any]], Any] = {}
        self._ends = ExitStack()

    def get(self, start: Callable[[], AbstractContextManager[T]]) -> T:
        """The started one, or a new one."""
        if start not in self._started:
            self._started[start] = self._ends.enter_context(start())
        found: T = self._started[start]
        return found

    def end(self) -> None:
        """End all of them; whoever needs one later starts another."""
        self._started.clear()
        self._ends.close()
