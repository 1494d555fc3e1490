"""Figures that the benchmark computes from its samples."""

from __future__ import annotations

import pytest

from ureplicator_bench.latency import Quantiles, quantiles
from ureplicator_bench.open_loop import lags_s
from ureplicator_bench.throughput import Throughput, combined


def test_lag_is_the_time_until_the_target_has_as_many_records() -> None:
    produced = [(0.0, 10), (1.0, 20), (2.0, 30)]
    copied = [(0.5, 9), (1.5, 20), (2.5, 40)]
    assert list(lags_s(produced, copied)) == [1.5, 0.5, 0.5]


def test_lag_is_never_negative() -> None:
    """The target may be sampled first."""
    assert list(lags_s([(1.0, 10)], [(0.9, 10)])) == [0.0]


def test_what_is_never_copied_is_late_until_the_last_sample() -> None:
    assert list(lags_s([(0.0, 10), (1.0, 99)], [(0.5, 10), (6.0, 50)])) == [0.5, 5.0]


def test_quantiles_of_nothing_are_an_error() -> None:
    assert quantiles([1.0, 2.0, 3.0]) == Quantiles(2.0, 3.0, 3.0, 3.0)
    with pytest.raises(AssertionError, match="no record arrived"):
        quantiles([])


def copy(*, seconds: float, cpu_s: float, rss: int, finished: bool = True) -> Throughput:
    return Throughput(
        records=1_000,
        size=1_000_000,
        seconds=seconds,
        start_s=2.0,
        second_half_records_per_s=1_000 / seconds,
        cpu_s=cpu_s,
        brokers_cpu_s=4.0,
        others_cpu_s=0.0,
        peak_rss_bytes=rss,
        finished=finished,
    )


def test_measurements_in_both_orders_count_alike() -> None:
    both = combined([copy(seconds=1.0, cpu_s=1.0, rss=7), copy(seconds=3.0, cpu_s=3.0, rss=5)])
    assert both.records_per_s == 500
    assert both.cpu_s_per_gb == 2.0
    assert both.peak_rss_bytes == 7
    assert both.finished
    one = copy(seconds=1.0, cpu_s=1.0, rss=7)
    assert not combined([one, copy(seconds=1.0, cpu_s=1.0, rss=7, finished=False)]).finished
