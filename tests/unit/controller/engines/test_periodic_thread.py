"""Thread of an engine: rounds at the interval that each round returns, until it is stopped."""

from __future__ import annotations

import threading

from ureplicator_controller.engines.periodic_thread import PeriodicThread

STOP_TIMEOUT_S = 20.0


def test_rounds_are_run_until_it_is_stopped() -> None:
    third = threading.Event()
    rounds: list[int] = []

    def run_once() -> float:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            third.set()
            return 3_600.0
        return 0.0

    thread = PeriodicThread(run_once, name="test", first_after_s=0.0)
    thread.start()
    assert third.wait(STOP_TIMEOUT_S)
    assert thread.stop(STOP_TIMEOUT_S)
    assert rounds == [0, 1, 2]


def test_one_that_was_never_started_can_be_stopped() -> None:
    assert PeriodicThread(lambda: 0.0, name="test", first_after_s=0.0).stop(STOP_TIMEOUT_S)
