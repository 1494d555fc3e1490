"""The ownership thread in tests without one: it keeps what it is asked for."""

from __future__ import annotations

from collections import deque

from ureplicator_worker.copier.messages import Command
from ureplicator_worker.copier.ownership.thread import Ownership


class Commands(Ownership):
    """`take`: the commands since the last call."""

    def __init__(self) -> None:
        self.queue: deque[Command] = deque()

    def put(self, command: Command) -> None:
        self.queue.append(command)

    def take(self) -> list[Command]:
        taken = list(self.queue)
        self.queue.clear()
        return taken
