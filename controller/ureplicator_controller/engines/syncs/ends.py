"""Clients of both ends of a route, opened when they are first used: when this process leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)


class Ends(Generic[Client]):
    def __init__(self, source: Callable[[], Client], target: Callable[[], Client]) -> None:
        self._connect = source, target
        self._clients: tuple[Client, Client] | None = None

    def opened(self) -> tuple[Client, Client]:
        """The clients of source and target."""
        if self._clients is None:
            source, target = self._connect
            self._clients = source(), target()
        return self._clients

    def close(self) -> None:
        for client in self._clients or ():
            client.close()
