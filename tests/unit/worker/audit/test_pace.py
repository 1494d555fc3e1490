"""Reading at a byte rate: small portions, and the rate over the whole time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ureplicator_worker.audit import signals, streams
from ureplicator_worker.audit.pace import CREDIT_S, PORTION_S, Pace
from ureplicator_worker.audit.signals import LOOK_S, Cancelled, DriverSignals, TaskSignals
from ureplicator_worker.audit.streams import PartitionLog


def spent_s(pace: Pace, sizes: Sequence[int], *, work_s: float = 0.0) -> float:
    now_s = 100.0
    for size in sizes:
        now_s += pace.wait_s(size, now_s=now_s)
        now_s += work_s
    return now_s - 100.0


def test_the_rate_is_kept_to_the_last_portion() -> None:
    assert spent_s(Pace(1_000), [250] * 40) == pytest.approx(10.0)
    assert spent_s(Pace(1_000), [50, 700, 250]) == pytest.approx(1.0)


def test_time_of_the_comparison_does_not_lower_the_rate() -> None:
    assert spent_s(Pace(1_000), [250] * 40, work_s=0.1) == pytest.approx(10.0, abs=0.2)


def test_an_idle_time_is_made_up_for_in_part() -> None:
    pace = Pace(1_000)
    pace.wait_s(1_000, now_s=0.0)
    assert pace.wait_s(3_000, now_s=60.0) == pytest.approx(3.0 - CREDIT_S)


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(0)
    assert pace.wait_s(1 << 30, now_s=0.0) == 0
    assert (pace.portion_bytes(4096), pace.first_count(100)) == (4096, 100)
    assert pace.read_ahead_kbytes() == 16_384


def test_less_is_read_ahead_at_a_low_rate() -> None:
    assert Pace(10_000).read_ahead_kbytes() == 64
    assert Pace(1 << 20).read_ahead_kbytes() == 1_024
    assert Pace(1 << 30).read_ahead_kbytes() == 16_384


class Time:
    """Waits take no time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.on_sleep()
        self.sleeps.append(seconds)


class Record:
    def __init__(self, offset: int, size: int) -> None:
        self._offset, self._size = offset, size

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return bytes(self._size)

    def timestamp(self) -> tuple[int, int]:
        return 1, 5


class Consumer:
    """Endless records."""

    size_bytes = 1_000

    def __init__(self, _: object) -> None:
        self._next = 0

    def assign(self, _: object) -> None:
        self._next = 0

    def unassign(self) -> None:
        """Nothing to give up."""

    def close(self) -> None:
        """Nothing to close."""

    def consume(self, count: int, timeout: float) -> list[Record]:
        first, self._next = self._next, self._next + count
        return [Record(offset, self.size_bytes) for offset in range(first, self._next)]


class LargeRecords(Consumer):
    size_bytes = 1_000_000


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    for module in (streams, signals):
        monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(streams, "Consumer", Consumer)
    return time


def test_a_log_hands_out_small_portions_at_a_low_rate(time: Time) -> None:
    with PartitionLog({}, "t", 0, rate_bytes_per_s=10_000) as log:
        sizes = [chunk.size_bytes for chunk in log.chunks(0, 200)]
    assert sum(sizes) == 200_000
    assert time.now_s == pytest.approx(20.0)
    assert max(time.sleeps) <= PORTION_S


def test_the_rate_holds_for_records_that_are_larger_than_a_portion(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "Consumer", LargeRecords)
    with PartitionLog({}, "t", 0, rate_bytes_per_s=10_000) as log:
        sizes = [chunk.size_bytes for chunk in log.chunks(0, 5)]
    assert sum(sizes) == 5_000_000
    assert time.now_s == pytest.approx(500.0)
    assert max(time.sleeps) <= LOOK_S


def test_a_cancel_is_seen_in_the_wait_for_a_large_record(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "Consumer", LargeRecords)
    with DriverSignals() as driver:
        time.on_sleep = lambda: driver.cancel() if time.now_s > 30 else None
        task = TaskSignals(driver.folder, 0)
        log = PartitionLog({}, "t", 0, rate_bytes_per_s=10_000, signals=task)
        with log, pytest.raises(Cancelled):
            list(log.chunks(0, 5))
    assert 30 < time.now_s < 30 + 4 * LOOK_S
