"""Latency of acknowledged batches."""

import time

from ureplicator_worker.copier.latency import LatencyHistogram


def test_a_batch_without_a_time_is_not_counted() -> None:
    latency = LatencyHistogram()
    latency.record(-1)
    assert (sum(latency.counts), latency.sum_ms) == (0, 0.0)


def test_a_time_in_the_future_is_no_latency() -> None:
    latency = LatencyHistogram()
    latency.record(int(time.time() * 1_000) + 60_000)
    latency.record(int(time.time() * 1_000) - 60_000)
    assert sum(latency.counts) == 2
    assert 59_000 < latency.sum_ms < 62_000
