"""Load of one partition: rates, the average that the leader balances, and progress."""

from __future__ import annotations

import pytest

from ureplicator_common.model import PartitionState
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_worker.core.load_samples import WINDOW_S, LoadTrend, Sample, first, following

ONLINE, OFFLINE, ERROR = PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ERROR


def sample(
    committed: int = 5, *, state: PartitionState = ONLINE, lag: int = 3, bytes: int = 0
) -> Sample:
    return Sample(state, records=0, bytes=bytes, position=committed, committed=committed, lag=lag)


def play(*samples: Sample, every_s: float = 10.0) -> PartitionLoad:
    trend: LoadTrend | None = None
    for number, measured in enumerate(samples):
        now_s = number * every_s
        trend = following(trend, measured, now_s) if trend else first(measured, now_s)
    assert trend is not None
    return trend.load


def test_the_average_is_over_the_whole_time_at_first() -> None:
    load = play(sample(), sample(bytes=1_000), sample(bytes=1_000), sample(bytes=4_000))
    assert load.bytes_per_s == 300
    assert load.steady_bytes_per_s == pytest.approx(4_000 / 30)
    assert load.measured_s == 30


def test_a_burst_changes_the_average_little_and_a_lasting_change_wholly() -> None:
    quiet = [sample(bytes=100 * at) for at in range(60)]
    burst = play(*quiet, sample(bytes=100 * 59 + 10_000))
    assert burst.bytes_per_s == 1_000
    assert 40 < burst.steady_bytes_per_s < 50
    lasting = play(*quiet, *(sample(bytes=5_900 + 10_000 * at) for at in range(1, 120)))
    assert lasting.steady_bytes_per_s == pytest.approx(1_000, rel=0.05)
    assert lasting.measured_s == WINDOW_S


def test_time_in_error_is_not_measured() -> None:
    copied = [sample(bytes=1_000 * at) for at in range(10)]
    away = [sample(bytes=9_000, state=ERROR)] * 50
    load = play(*copied, *away)
    assert (load.bytes_per_s, load.steady_bytes_per_s, load.measured_s) == (0, 100, 90)
    assert load.held_s == 590


@pytest.mark.parametrize(
    ("last", "no_progress_s"),
    [
        (sample(5), 30),
        (sample(6), 0),
        (sample(4), 0),  # restarted at an earlier offset: it moves
        (sample(5, lag=0), 0),  # nothing to copy
        (sample(5, lag=0, state=ERROR), 30),  # who knows what there is to copy
        (sample(5, lag=0, state=OFFLINE), 30),
        (sample(5, lag=-1), 30),
        (sample(-1, lag=-1, state=ERROR), 30),
    ],
)
def test_progress_is_a_position_that_moves_or_nothing_to_copy(
    last: Sample, no_progress_s: float
) -> None:
    load = play(sample(5), sample(5), sample(5), last)
    assert load.no_progress_s == no_progress_s
    assert (load.no_progress_s < load.held_s) == (no_progress_s == 0)


def test_a_position_that_is_only_read_is_no_progress() -> None:
    starting = sample(-1, state=OFFLINE, lag=-1)
    assert play(starting, sample(100), sample(100)).no_progress_s == 20
    assert play(starting, sample(100), starting, sample(100)).no_progress_s == 30, "read again"
    assert play(starting, sample(100), starting, sample(101)).no_progress_s == 0


def test_progress_once_is_seen_for_as_long_as_it_is_held() -> None:
    load = play(sample(5), sample(6), *[sample(6)] * 100)
    assert (load.no_progress_s, load.held_s) == (1_000, 1_010)
