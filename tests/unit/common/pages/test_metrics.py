"""Every sample of a process names its fleet, whatever kind of collector serves it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ureplicator_common.pages.metrics import FleetRegistry


class _Workers:
    """A collector without `describe`, as those of REST and workers are."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("workers", "Workers.", value=2)


@pytest.fixture
def registry() -> FleetRegistry:
    return FleetRegistry("orders")


def test_collectors_with_and_without_labels_of_their_own(registry: FleetRegistry) -> None:
    registry.register(_Workers())
    Counter("moves", "Moves.", ["cause"], registry=registry).labels("join").inc()
    Histogram("cycle", "Cycle.", buckets=[1.0], registry=registry).observe(0.5)
    lines = generate_latest(registry).decode().splitlines()
    assert {
        'workers{fleet="orders"} 2.0',
        'moves_total{cause="join",fleet="orders"} 1.0',
        'cycle_bucket{fleet="orders",le="1.0"} 1.0',
        'cycle_sum{fleet="orders"} 0.5',
    } <= set(lines)
    assert all(line.startswith("#") or 'fleet="orders"' in line for line in lines)


def test_one_name_alone_is_labelled_too(registry: FleetRegistry) -> None:
    """The query `?name[]=moves_total` asks for one."""
    Counter("moves", "Moves.", registry=registry).inc()
    Counter("turns", "Turns.", registry=registry).inc()
    text = generate_latest(registry.restricted_registry(["moves_total"])).decode()
    assert 'moves_total{fleet="orders"} 1.0' in text
    assert "turns" not in text


def test_a_name_is_taken_once(registry: FleetRegistry) -> None:
    Counter("moves", "Moves.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Counter("moves", "Moves.", registry=registry)


def test_the_metric_itself_is_left_as_it_is(registry: FleetRegistry) -> None:
    moves = Counter("moves", "Moves.", registry=registry)
    moves.inc()
    generate_latest(registry)
    [family] = moves.collect()
    assert [sample.labels for sample in family.samples] == [{}, {}]
