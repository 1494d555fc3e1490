"""Flag that a signal handler sets and the main thread waits for.

A handler runs in the main thread between any two of its instructions. `threading.Event` takes a lock in
`wait` and in `set`: a signal that comes while the main thread holds it would block it for good. The queue
takes none that a handler could wait for (`queue.SimpleQueue.put` is reentrant).
"""

from __future__ import annotations

import queue


class StopFlag:
    """Once set it stays so. Any thread may wait."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Safe in a signal handler."""
        self._requests.put(None)

    def is_set(self) -> bool:
        return not self._requests.empty()

    def wait(self, timeout_s: float) -> bool:
        """True as soon as it is set, False after this time without."""
        try:
            self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._requests.put(None)
        return True
