"""Waits that say what they are for once they are long, as on a busy machine.

Who reads that can end them, so their deadlines are for what stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from ureplicator_testkit.servers.processes import NotInTimeError, deadline_factor

TELL_S = 10.0
POLL_INTERVAL_S = 0.2


def await_none_missing(
    missing: Callable[[], str],
    deadline_s: float,
    *,
    console: Console,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until `missing` names nothing, and print what it names each TELL_S. Raises NotInTimeError."""
    end = clock() + deadline_s * deadline_factor()
    tell_at = clock() + TELL_S
    while text := missing():
        if clock() >= end:
            raise NotInTimeError(f"not within {deadline_s:.0f} s: {text}")
        if clock() >= tell_at:
            console.print(f"  waits for {text}", style="dim", markup=False, soft_wrap=True)
            tell_at = clock() + TELL_S
        sleep(POLL_INTERVAL_S)
