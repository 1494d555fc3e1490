"""Producer ids of the raw lane: one id serves each partition once.

A partition that lost its sequences needs an id whose sequences it has not used. So partitions share an
id until one of them needs a second; then a new id is requested, and those that wait for it share it.
"""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_worker.copier.messages import NewProducer
from ureplicator_worker.copier.raw.send_window import SendWindow


class Producers:
    """NewProducer is posted once until `ready`."""

    def __init__(self, post: Callable[[NewProducer], None]) -> None:
        self._post = post
        self._requested = False
        self._current: tuple[int, int] | None = None
        self._used: set[tuple[str, int]] = set()

    def restart(self, target: tuple[str, int], window: SendWindow) -> bool:
        """Restart a window under an id that its target has not seen; False while there is none."""
        if self._current is not None and target not in self._used:
            self._used.add(target)
            window.restart(*self._current)
            return True
        if not self._requested:
            self._requested = True
            self._post(NewProducer())
        return False

    def ready(self, id: int, epoch: int) -> None:
        self._requested = False
        self._current = (id, epoch)
        self._used.clear()
