"""A flag that signal handlers set, wherever the main thread is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ureplicator_common.stop_flag import StopFlag

LINES = 200
"""More than a wait has, also within the library."""


def interrupted(call: Callable[[], object], at: int, handler: Callable[[], None]) -> bool:
    """Call, and run the handler before the given line of all that it runs; False if it has fewer."""
    left = [at]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                handler()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return left[0] <= 0


def test_a_handler_may_set_it_at_any_moment_of_a_wait() -> None:
    for at in range(1, LINES):
        flag = StopFlag()
        if not interrupted(lambda: flag.wait(0.001), at, flag.set):  # noqa: B023  # called at once
            break
        assert flag.is_set()
        assert flag.wait(0)
    assert 2 < at < LINES


def test_an_event_holds_a_lock_that_a_handler_would_wait_for() -> None:
    """The reason for the flag: without it, this is what stops a process."""

    def is_free(event: threading.Event) -> bool:
        lock = event._cond._lock  # type: ignore[attr-defined]
        return bool(lock.acquire(blocking=False)) and lock.release() is None

    held = []
    for at in range(1, LINES):
        event = threading.Event()
        look = lambda: held.append(not is_free(event))  # noqa: B023, E731
        if not interrupted(lambda: event.wait(0.001), at, look):  # noqa: B023
            break
    assert any(held)


def test_it_stays_set() -> None:
    flag = StopFlag()
    assert not flag.wait(0)
    flag.set()
    flag.set()
    assert [flag.wait(0), flag.wait(0), flag.is_set()] == [True, True, True]


@pytest.mark.parametrize("waiters", [1, 3])
def test_all_that_wait_see_it(waiters: int) -> None:
    flag, seen = StopFlag(), []
    threads = [threading.Thread(target=lambda: seen.append(flag.wait(30))) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join()
    assert seen == [True] * waiters
