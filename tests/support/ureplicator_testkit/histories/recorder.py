"""The file of one history: events are appended with their time, by any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ureplicator_testkit.histories.events import Event, decode, encode


class History:
    """Times are seconds since it began."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("a")

    def add(self, event: Event) -> None:
        with self._lock:
            timed = replace(event, at_s=round(time.monotonic() - self._began_s, 4))
            self._file.write(encode(timed) + "\n")

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def events(self) -> Iterator[Event]:
        """All so far."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
        return load(self.path)


def load(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        yield from map(decode, lines)


def ignore(_event: Event) -> None:
    """Add nothing, instead of `History.add`, where no history is kept."""
