"""Threads of an auditor that make no progress."""

from __future__ import annotations

from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_worker.auditor.heartbeats import HANG_S, Heartbeats


def test_a_thread_that_hangs_is_named() -> None:
    clock = ManualClock()
    heartbeats = Heartbeats(clock)
    assert heartbeats.hanging == ""
    heartbeats.beat("requests")
    heartbeats.beat("following")
    clock.advance(HANG_S)
    assert heartbeats.hanging == ""
    heartbeats.beat("following")
    clock.advance(1)
    assert heartbeats.hanging == f"requests made no progress for {HANG_S + 1:.0f} s"
    heartbeats.beat("requests")
    assert heartbeats.hanging == ""
