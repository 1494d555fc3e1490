"""Lag of a partition from samples of its position and log: tables, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import BatchTime, Extent, Lifetime
from ureplicator_common.model import Partition, Route
from ureplicator_controller.core.reporting.lag import (
    RATE_WINDOW_S,
    START_WINDOW_S,
    LagHistory,
    LagSample,
    PartitionLag,
    RecordTime,
    add_sample,
    combined,
    partition_lag,
    record_times_to_read,
    summarise,
)

NOW_MS = 1_000_000_000
HOUR = Lifetime(retention_ms=3_600_000)


def tracks_of(*samples: tuple[float, int | None, int, int]) -> LagHistory:
    """(time, position, log start, log end) of each sample."""
    tracks: LagHistory | None = None
    for at_s, position, start, end in samples:
        tracks = add_sample(tracks, LagSample(at_s, position, Extent(start, end)))
    assert tracks is not None
    return tracks


def judged(
    *samples: tuple[float, int | None, int, int],
    record: BatchTime | None = None,
    lifetime: Lifetime | None = HOUR,
) -> PartitionLag:
    return partition_lag(tracks_of(*samples), record=record, lifetime=lifetime, wall_ms=NOW_MS)


def seconds_ago(age_s: float, *, first: int = 0, last: int = 1_000) -> BatchTime:
    return BatchTime(first, last, NOW_MS - int(age_s * 1_000))


# --- Lag


def test_never_committed_is_not_lag_0() -> None:
    for end in (0, 100):
        found = judged((0, None, 0, end), record=seconds_ago(5))
        assert found.never_committed
        assert found.lag_records is None
        assert found.lag_s is None
        assert found.retention_s is None
        assert found.reason


def test_fully_copied_partition_has_lag_0() -> None:
    found = judged((0, 100, 0, 100), record=None)
    assert (found.lag_records, found.lag_s, found.catch_up_s) == (0, 0.0, 0.0)
    assert found.retention_s is None
    assert not found.reason


def test_a_position_above_the_end_has_no_lag_but_a_reason() -> None:
    found = judged((0, 100, 0, 20), record=seconds_ago(5))
    assert found.lag_records is None
    assert found.lag_s is None
    assert "above the end" in found.reason


@pytest.mark.parametrize(
    ("record", "lag_s"),
    [
        (seconds_ago(7), 7.0),
        (seconds_ago(7, first=40), 7.0),
        (seconds_ago(-30), 0.0),  # a producer's clock that is ahead
        (seconds_ago(7, last=39), 7.0),  # of a record before: at most
        (seconds_ago(7, first=41), None),  # of a record behind it: the position went back
        (BatchTime(0, 1_000, -1), None),
        (BatchTime(0, 1_000, NOW_MS * 1_000_000), None),  # nanoseconds
        (BatchTime(0, 1_000, 2**63 - 1), None),
        (None, None),
    ],
)
def test_lag_in_seconds(record: BatchTime | None, lag_s: float | None) -> None:
    assert judged((0, 40, 0, 100), record=record).lag_s == lag_s


def test_time_since_a_sample_whose_end_was_reached_bounds_the_lag() -> None:
    samples = ((0.0, 50, 0, 100), (4.0, 100, 0, 120))
    assert judged(*samples).lag_s == 4
    assert judged(*samples, record=seconds_ago(90, last=99)).lag_s == 4
    assert judged(*samples, record=seconds_ago(1, first=100, last=110)).lag_s == 1
    assert judged((0.0, 50, 0, 100), (4.0, 99, 0, 120)).lag_s is None


# --- Rates


def test_rate_and_time_to_catch_up() -> None:
    found = judged((0, 0, 0, 1_000), (10, 300, 0, 1_100))
    assert found.records_per_s == 30
    assert found.catch_up_s == (1_100 - 300) / (30 - 10)


@pytest.mark.parametrize(
    "samples",
    [
        [(0, 0, 0, 100)],
        [(0, 0, 0, 100), (10, 0, 0, 100)],
        [(0, 0, 0, 100), (10, 50, 0, 200)],
    ],
    ids=["one sample", "standing still", "falling behind"],
)
def test_no_catch_up_time_without_gain(samples: list[tuple[float, int, int, int]]) -> None:
    assert judged(*samples).catch_up_s is None


def test_rates_ignore_samples_before_the_window() -> None:
    fast = [(float(second), second * 100, 0, 100_000) for second in range(0, 60, 5)]
    still = [(60.0 + second, 5_500, 0, 100_000) for second in range(0, 60, 5)]
    assert judged(*fast).records_per_s == 100
    assert judged(*fast, *still).records_per_s == 0


PAUSED = [(float(second), 0, 0, 10_000) for second in range(0, 30, 5)]


def test_pause_does_not_count_once_the_position_advances_again() -> None:
    assert judged(*PAUSED).records_per_s == 0
    assert judged(*PAUSED, (30, 500, 0, 10_000)).records_per_s is None
    assert judged(*PAUSED, (30, 500, 0, 10_000)).catch_up_s is None
    found = judged(*PAUSED, (30, 500, 0, 10_000), (35, 1_500, 0, 10_000))
    assert found.records_per_s == 200
    assert found.catch_up_s == 8_500 / 200


def test_time_without_records_to_copy_counts() -> None:
    idle = [(float(second), 0, 0, 0) for second in range(0, 30, 5)]
    assert judged(*idle, (30, 300, 0, 300)).records_per_s == 300 / 15


def test_samples_closer_than_a_commit_show_no_pause() -> None:
    assert judged((0, 0, 0, 100), (1, 0, 0, 100), (2, 50, 0, 100)).records_per_s == 25


@pytest.mark.parametrize(
    "after",
    [(10.0, 50, 0, 300), (10.0, 200, 0, 250), (10.0, None, 0, 300)],
    ids=["position back", "log cut", "position gone"],
)
def test_another_log_or_position_restarts_the_history(
    after: tuple[float, int | None, int, int],
) -> None:
    found = judged((0, 100, 0, 300), after, record=seconds_ago(1))
    assert found.records_per_s is None
    assert found.catch_up_s is None


# --- Retention


@pytest.mark.parametrize(
    ("lifetime", "left_s"),
    [
        (HOUR, 3_000.0),
        (Lifetime(retention_ms=60_000), 0.0),  # its segment is only not deleted yet
        (Lifetime(), None),
        (Lifetime(retention_bytes=10**9), None),  # the log start does not move
        (None, None),
    ],
)
def test_retention_by_time(lifetime: Lifetime | None, left_s: float | None) -> None:
    found = judged((0, 40, 0, 100), record=seconds_ago(600), lifetime=lifetime)
    assert found.retention_s == left_s


def test_retention_without_a_time_of_the_record() -> None:
    assert judged((0, 40, 0, 100), record=BatchTime(0, 90, -1)).retention_s is None


def test_retention_by_size() -> None:
    """The log start advances by 10 offsets per second and is 500 away."""
    samples = ((0.0, 1_500, 0, 2_000), (100.0, 1_500, 1_000, 3_000))
    by_size = Lifetime(retention_bytes=10**9)
    assert judged(*samples, lifetime=by_size).retention_s == 50
    assert judged(*samples, lifetime=Lifetime()).retention_s is None
    both = Lifetime(retention_ms=610_000, retention_bytes=10**9)
    record = seconds_ago(600, last=5_000)
    assert judged(*samples, lifetime=both, record=record).retention_s == 10


def test_log_start_that_has_not_moved_is_not_approaching() -> None:
    samples = [(0.0, 500, 0, 900), (1.0, 500, 100, 900)]
    samples += [(at_s, 500, 100, 900) for at_s in (400.0, 800.0, 1_200.0)]
    assert judged(*samples, lifetime=Lifetime(retention_bytes=1)).retention_s is None


def test_offsets_deleted_by_retention_are_reported() -> None:
    found = judged((0, 40, 60, 100), record=None, lifetime=None)
    assert found.retention_s == 0
    assert "20 offsets" in found.reason
    assert found.lag_records == 60


# --- Any history

offsets = st.integers(0, 1_000)
samples = st.lists(
    st.tuples(st.floats(0.01, 700), st.none() | offsets, offsets, offsets), min_size=1, max_size=12
)
records = st.none() | st.builds(
    BatchTime, offsets, offsets, st.just(-1) | st.integers(0, 2 * NOW_MS)
)
lifetimes = st.none() | st.builds(
    Lifetime, st.none() | st.integers(0, NOW_MS), st.none() | st.integers(0, 10**9)
)


@given(samples, records, lifetimes)
def test_values_are_never_negative_and_never_0_while_unknown(
    steps: list[tuple[float, int | None, int, int]],
    record: BatchTime | None,
    lifetime: Lifetime | None,
) -> None:
    tracks: LagHistory | None = None
    now_s = 0.0
    for wait_s, position, start, length in steps:
        now_s += wait_s
        tracks = add_sample(tracks, LagSample(now_s, position, Extent(start, start + length)))
        found = partition_lag(tracks, record=record, lifetime=lifetime, wall_ms=NOW_MS)
        end = start + length
        wanted = None if position is None or position > end else end - position
        assert found.lag_records == wanted
        assert (found.lag_s == 0 and found.lag_records == 0) or found.lag_records != 0
        assert found.reason or found.lag_records is not None
        for figure in (found.lag_s, found.records_per_s, found.catch_up_s, found.retention_s):
            assert figure is None or figure >= 0


@given(st.lists(st.floats(0.1, 20), min_size=2, max_size=60), st.integers(1, 50))
def test_steady_rate_is_measured_within_the_window(waits_s: list[float], rate: int) -> None:
    tracks: LagHistory | None = None
    now_s = 0.0
    for wait_s in waits_s:
        now_s += wait_s
        position = round(now_s * rate)
        tracks = add_sample(tracks, LagSample(now_s, position, Extent(0, 10**6)))
    assert tracks is not None
    found = partition_lag(tracks, record=None, lifetime=None, wall_ms=NOW_MS)
    took_s = tracks.short.latest.at_s - tracks.short.base.at_s
    assert found.records_per_s == pytest.approx(rate, abs=1.01 / took_s)
    longest_step_s = max(waits_s)
    assert took_s <= RATE_WINDOW_S + 2 * longest_step_s
    assert now_s - tracks.long.base.at_s <= START_WINDOW_S + 2 * longest_step_s


# --- What to read, and sums

ROUTE = Route("a", "b")
ONE, TWO, THREE, FOUR = (Partition(ROUTE, "t", number) for number in range(4))


def test_lagging_partitions_unread_for_longest_are_read_first() -> None:
    extent = Extent(0, 100)
    now = {partition: LagSample(9, 50, extent) for partition in (ONE, TWO, THREE, FOUR)}
    before = {
        ONE: LagSample(4, 10, Extent(0, 50)),  # reached that end: moments late
        TWO: LagSample(4, 10, extent),
        THREE: LagSample(4, 10, extent),
    }
    readings = {
        ONE: RecordTime(None, 1.0),
        TWO: RecordTime(BatchTime(0, 9, 5), 4.0),
        THREE: RecordTime(BatchTime(0, 9, 5), 2.0),
    }
    requested = record_times_to_read(now, before=before, readings=readings, limit=10)
    assert requested == [FOUR, THREE, TWO, ONE]
    assert record_times_to_read(now, before=before, readings=readings, limit=2) == [FOUR, THREE]


@pytest.mark.parametrize(
    ("sample", "reading"),
    [
        (LagSample(0, 100, Extent(0, 100)), None),
        (LagSample(0, None, Extent(0, 100)), None),
        (LagSample(0, 5, Extent(10, 100)), None),
        (LagSample(0, 200, Extent(10, 100)), None),
        (LagSample(0, 50, Extent(0, 100)), RecordTime(BatchTime(50, 60, 1), 0.0)),
    ],
    ids=["done", "never committed", "gone", "above the end", "known"],
)
def test_known_timestamps_are_not_read_again(sample: LagSample, reading: RecordTime | None) -> None:
    readings = {ONE: reading} if reading else {}
    assert record_times_to_read({ONE: sample}, before={}, readings=readings, limit=10) == []


def test_summary_counts_unknown_partitions() -> None:
    found = summarise(
        [
            judged((0, 40, 0, 100), record=seconds_ago(7)),
            judged((0, 90, 0, 100), record=seconds_ago(70)),
            judged((0, None, 0, 100)),
            PartitionLag(reason="source: no response"),
        ]
    )
    assert (found.partitions, found.never_committed, found.unknown) == (4, 1, 2)
    assert (found.lag_records, found.lag_s, found.retention_s) == (70, 70.0, 3_530.0)
    assert summarise([PartitionLag(reason="?")]).lag_records is None
    assert summarise([]).lag_s is None


_LAGS = st.builds(
    PartitionLag,
    lag_records=st.none() | st.integers(0, 99),
    lag_s=st.none() | st.floats(0, 99),
    retention_s=st.none() | st.floats(0, 99),
    never_committed=st.booleans(),
)


@given(st.lists(st.lists(_LAGS, max_size=3), max_size=4))
def test_combined_summaries_are_the_summary_of_all(groups: list[list[PartitionLag]]) -> None:
    together = [lag for group in groups for lag in group]
    assert combined(map(summarise, groups)) == summarise(together)
