"""Latency of acknowledged batches."""

import pytest

from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.lifeline.messages import LATENCY_BOUNDS_MS

NOW_S = 1_000.0
NOW_MS = 1_000_000


@pytest.fixture
def latency() -> LatencyHistogram:
    return LatencyHistogram(monotonic_s=lambda: NOW_S, wall_s=lambda: NOW_S)


def buckets(latency: LatencyHistogram) -> list[int]:
    """Numbers of the buckets that hold something."""
    return [number for number, count in enumerate(latency.counts) if count]


def test_a_batch_without_a_time_is_not_counted(latency: LatencyHistogram) -> None:
    latency.record(-1)
    assert (sum(latency.counts), latency.sum_ms) == (0, 0.0)


def test_a_time_in_the_future_is_no_latency(latency: LatencyHistogram) -> None:
    latency.record(NOW_MS + 60_000)
    assert (buckets(latency), latency.sum_ms) == ([0], 0.0)


def test_a_latency_is_counted_below_its_bound(latency: LatencyHistogram) -> None:
    bound_ms = LATENCY_BOUNDS_MS[3]
    latency.record(NOW_MS - bound_ms, NOW_MS - bound_ms)
    latency.record_since(NOW_S - (bound_ms + 1) / 1_000)
    assert buckets(latency) == [3, 4]
    assert latency.counts[3] == 2
    assert latency.sum_ms == pytest.approx(3 * bound_ms + 1)


def test_what_exceeds_the_last_bound_is_counted(latency: LatencyHistogram) -> None:
    latency.record(NOW_MS - LATENCY_BOUNDS_MS[-1] - 1)
    assert buckets(latency) == [len(LATENCY_BOUNDS_MS)]
