"""Spark of an auditor runs while records are compared, and for some time after."""

from __future__ import annotations

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_worker.auditor.on_demand import SparkOnDemand

IDLE_S = 300.0


class Session:
    """`fails`: it does not start."""

    def __init__(self, number: int, *, fails: bool) -> None:
        self.number = number
        self.fails = fails
        self.closed = 0

    def start(self) -> str:
        if self.fails:
            raise PermanentError("no Java")
        return f"session {self.number}"

    def close(self) -> None:
        self.closed += 1


class Auditor:
    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self.clock = ManualClock()
        self.sessions: list[Session] = []
        self.failures: list[str] = []
        self.fails = False
        self.spark = SparkOnDemand(
            open=self._open, idle_s=idle_s, on_failed=self.failures.append, clock=self.clock
        )

    def _open(self) -> Session:
        self.sessions.append(Session(len(self.sessions), fails=self.fails))
        return self.sessions[-1]

    def compare(self) -> str:
        with self.spark.session() as session:
            return str(session)

    def after(self, seconds: float) -> list[int]:
        """Number of closes of each session, once the main thread has looked."""
        self.clock.advance(seconds)
        self.spark.end_idle()
        return [session.closed for session in self.sessions]


def test_comparisons_share_a_session_that_ends_when_idle() -> None:
    auditor = Auditor()
    assert not auditor.spark.is_running
    assert auditor.compare() == "session 0"
    assert auditor.after(IDLE_S - 1) == [0]
    assert auditor.compare() == "session 0"
    assert auditor.after(IDLE_S - 1) == [0], "its last use counts"
    assert auditor.after(1) == [1]
    assert not auditor.spark.is_running
    assert auditor.after(IDLE_S) == [1]


def test_the_next_comparison_starts_another_one() -> None:
    auditor = Auditor()
    auditor.compare()
    auditor.after(IDLE_S)
    assert auditor.compare() == "session 1"
    assert auditor.after(1) == [1, 0]
    assert (auditor.spark.is_running, auditor.spark.starts) == (True, 2)


def test_a_session_in_use_is_not_ended() -> None:
    auditor = Auditor()
    with auditor.spark.session():
        with auditor.spark.session():
            assert auditor.after(10 * IDLE_S) == [0]
        assert auditor.after(10 * IDLE_S) == [0]
    assert auditor.after(IDLE_S - 1) == [0]
    assert auditor.after(1) == [1]


def test_a_comparison_that_fails_uses_it_no_longer() -> None:
    auditor = Auditor()
    with pytest.raises(OSError, match="Spark"), auditor.spark.session():
        raise OSError("Spark")
    assert auditor.after(IDLE_S) == [1]


def test_0_keeps_it() -> None:
    auditor = Auditor(idle_s=0)
    auditor.compare()
    assert auditor.after(1_000_000) == [0]


def test_a_start_that_fails_is_told() -> None:
    auditor = Auditor()
    auditor.compare()
    auditor.after(IDLE_S)
    auditor.fails = True
    with pytest.raises(PermanentError, match="no Java"):
        auditor.compare()
    assert (auditor.failures, auditor.spark.is_running) == (["no Java"], False)


def test_close_ends_a_session_that_is_used() -> None:
    auditor = Auditor()
    auditor.spark.close()
    with auditor.spark.session():
        auditor.spark.close()
        assert [session.closed for session in auditor.sessions] == [1]
