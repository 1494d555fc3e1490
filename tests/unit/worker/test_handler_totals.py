"""Counters of handlers on the worker's page: totals over runs and slots, for the topics that are held."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from ureplicator_common.model import Partition, Route
from ureplicator_worker.core.handler_totals import HandlerTotals
from ureplicator_worker.engines.event_queue import joined
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.messages import CopierId, CopierReport, HandlerReport

ORDERS, CLICKS = "a.b/orders", "a.b/clicks"


def test_totals_are_those_of_all_slots_and_grow_over_runs() -> None:
    totals = HandlerTotals()
    for copier, records in [
        (CopierId(0, 1), 100),
        (CopierId(0, 1), 150),
        (CopierId(1, 1), 10),
        (CopierId(0, 2), 20),
    ]:
        totals.count(copier, {ORDERS: HandlerReport(records=records, busy_ms=2 * records)})
    assert totals.of({ORDERS, CLICKS}) == {ORDERS: HandlerReport(records=180, busy_ms=360)}


def test_topics_that_are_not_held_are_forgotten() -> None:
    totals = HandlerTotals()
    totals.count(CopierId(0, 1), {ORDERS: HandlerReport(records=5)})
    assert totals.of({CLICKS}) == {}
    totals.count(CopierId(0, 1), {ORDERS: HandlerReport(records=7)})
    assert totals.of({ORDERS}) == {ORDERS: HandlerReport(records=2)}


def test_reports_that_wait_are_joined_with_those_of_handlers() -> None:
    former = CopierReport({}, handlers={ORDERS: HandlerReport(1), CLICKS: HandlerReport(2)})
    latter = CopierReport({}, handlers={ORDERS: HandlerReport(3)})
    assert joined(former, latter).handlers == {ORDERS: HandlerReport(3), CLICKS: HandlerReport(2)}


def test_metrics_name_route_and_topic() -> None:
    telemetry = Telemetry()
    held = {Partition(Route("a", "b"), "orders", 0): None}
    report = HandlerReport(
        records=9, outputs=8, dropped=2, dead_letters=1, errors=3, chunks=4, busy_ms=500, starts=2
    )
    telemetry.count(CopierId(0, 1), CopierReport({}, handlers={ORDERS: report}), held)
    registry = CollectorRegistry()

    class Collector:
        def collect(self) -> list[Metric]:
            return list(telemetry.metrics(held))

    registry.register(Collector())
    text = generate_latest(registry).decode()
    labels = '{route="a.b",topic="orders"}'
    for line in (
        f"records_total{labels} 9.0",
        f"outputs_total{labels} 8.0",
        f"dropped_total{labels} 2.0",
        f"dead_letters_total{labels} 1.0",
        f"errors_total{labels} 3.0",
        f"starts_total{labels} 2.0",
        f"chunk_seconds_count{labels} 4.0",
        f"chunk_seconds_sum{labels} 0.5",
    ):
        assert f"ureplicator_worker_handler_{line}" in text
