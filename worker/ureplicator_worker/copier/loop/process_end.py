"""The end of the copier's process from outside: SIGTERM, and the stacks of a loop that is stuck.

SIGTERM (a supervisor that ends all processes of a service, an operator) makes the copier request its
stop from the driver: it drains, commits and releases, as for any other stop, so nothing is copied twice.
A driver that does not respond within `STOP_REQUEST_S` is left, and the copier drains alone.

A copier whose loop makes no turn sends no reports, and the driver ends it after `silence_s`. Before that
all stacks are written to the lifeline, for the driver's log. `faulthandler` does it in a thread in C,
which needs nothing of the interpreter: not its lock, nor the loop that is stuck. The text goes between
two messages, or where a message is cut off the connection is of no more use anyway.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_REQUEST_S = 2.0
BEFORE_SILENCE = 0.8
"""Share of `silence_s` after which stacks are written."""
ARM_EVERY_S = 1.0


@contextmanager
def on_sigterm(call: Callable[[], None]) -> Iterator[None]:
    """Call it at SIGTERM, in the main thread of a process; elsewhere there are no handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


class StackDump:
    """Writes all stacks to the socket `descriptor` after a time without `turn`.

    The descriptor is a duplicate: the number of a closed one may become a broker's connection. It never
    blocks: `close` waits for a dump that is being written, and the driver may read nothing.
    """

    def __init__(self, descriptor: int, *, silence_s: float) -> None:
        assert not os.get_blocking(descriptor)
        self._descriptor: int | None = os.dup(descriptor)
        self._after_s = silence_s * BEFORE_SILENCE
        self._armed_s: float | None = None

    def turn(self, now_s: float) -> None:
        """The loop is alive."""
        if self._descriptor is None:
            return
        if self._armed_s is None or now_s - self._armed_s >= min(ARM_EVERY_S, self._after_s / 2):
            self._armed_s = now_s
            faulthandler.dump_traceback_later(self._after_s, file=self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            faulthandler.cancel_dump_traceback_later()
            os.close(self._descriptor)
            self._descriptor = None
