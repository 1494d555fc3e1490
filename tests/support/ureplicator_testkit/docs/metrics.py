"""The metrics of every process, with their labels: as tests compare them with alerts and dashboards, and as
the tables in `docs/metrics.md`.

Labels without a value yet are known from the families themselves, but those that REST serves as text need a
fleet that has something of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ureplicator_common.audits import TopicAudit, VerifiedRange
from ureplicator_common.kafka import BatchTime, Lifetime
from ureplicator_common.model import TopicKey, WorkerId, position_group
from ureplicator_common.znode_contents import RouteUsage, TopicIntent, WorkerUsage
from ureplicator_common.znodes.audits import encode_audit_state
from ureplicator_common.znodes.workers import encode_usage
from ureplicator_controller.api.app import TIMELINE
from ureplicator_controller.api.services.fleet_cache import LOADS_MAX_AGE_S
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture
from ureplicator_worker.auditor.pages import auditor_metrics
from ureplicator_worker.core.state import initial
from ureplicator_worker.engines import metric_families as families
from ureplicator_worker.engines import worker_metrics as telemetry
from ureplicator_worker.lifeline.measures import Measures
from ureplicator_worker.lifeline.messages import CopierId, CopierReport

GROUP = position_group(fleet="test", route=ROUTE)
RETENTION_MS = 3_600_000
FLEET = "fleet"
"""Label of every sample that a process serves, and of no family: the tables leave it out."""
LABELS = "_labelnames"
"""Attribute of families and collectors; what a collector returns has none without a sample."""


def of_rest() -> list[Metric]:
    """Metrics of REST: the fleet and its lag, the same at every controller."""
    fixture = RestFixture()
    fixture.clock.advance(RETENTION_MS / 1_000)  # no time of a record is before 1970
    fixture.put_intent(
        "orders", TopicIntent(1, 1, source_topic_id="s", target_topic_id="t", target_topic="orders")
    )
    fixture.add_worker("w1")
    fixture.place("orders", {0: "w1"})
    fixture.logs["source"].hold("orders", 0, 10, 100)
    fixture.positions.put(GROUP, "orders", 0, 40)
    now_ms = fixture.clock.wall_ms()
    fixture.logs["source"].logs["orders", 0].times = [BatchTime(30, 50, now_ms - 20_000)]
    fixture.logs["source"].lives["orders"] = Lifetime(retention_ms=RETENTION_MS)
    audit = TopicAudit("s", "t", {0: VerifiedRange(10, 20, now_ms)})
    fixture.put(fixture.paths.audits.state(TopicKey(ROUTE, "orders")), encode_audit_state(audit))
    fixture.call("PUT", "/limits/workers/w1", json={"bytesPerSecond": 1_000_000})
    usage, sampler = fixture.paths.measures.usage(WorkerId("w1")), fixture.app.extensions[TIMELINE]
    for copied in (0, 1_000_000):
        counts = {ROUTE: RouteUsage(copied, copied)}
        fixture.put(usage, encode_usage(WorkerUsage(now_ms, copied, counts)), ephemeral=True)
        sampler.run_once()
        fixture.clock.advance(LOADS_MAX_AGE_S)
    text = fixture.call("GET", "/metrics").text
    fixture.close()
    return list(text_string_to_metric_families(text))


def of_control() -> list[Metric]:
    """Metrics of the daemon of a controller."""
    registry = ControlMetrics(CollectorRegistry()).registry
    return [
        _with_labels(metric, getattr(collector, LABELS, ()))
        for collector in registry._collector_to_names
        for metric in collector.collect()
    ]


def _with_labels(metric: Metric, names: Iterable[str]) -> Metric:
    setattr(metric, LABELS, tuple(names))
    return metric


def of_worker() -> list[Metric]:
    """Metrics of a worker and its copiers."""
    state = initial(slots=1, silence_s=60.0, now_s=0.0, routes=())
    counters = telemetry.Telemetry()
    report = CopierReport({}, latency_ms=(1,), measures=Measures(fetch_to_ack_ms=(1,)))
    counters.count(CopierId(0, 1), report, ())
    return [
        *counters.metrics(()),
        *telemetry.state_metrics(state),
        *families.process_metrics(counters.measures(), jvm_pid=0),
    ]


def of_auditor() -> list[Metric]:
    """Metrics of an auditor."""
    return list(auditor_metrics({}, ()))


PROCESSES: Mapping[str, Callable[[], Iterable[Metric]]] = {
    "Controller, REST port": of_rest,
    "Controller, metrics port": of_control,
    "Worker": of_worker,
    "Auditor": of_auditor,
}


def full_name(metric: Metric) -> str:
    """Name as queries have it: of a counter with its ending."""
    return metric.name + ("_total" if metric.type == "counter" else "")


def labels(metric: Metric) -> list[str]:
    """Labels of its samples, without the fleet and those that a histogram adds."""
    found = dict.fromkeys(getattr(metric, LABELS, ()))
    for sample in metric.samples:
        found |= dict.fromkeys(sample.labels)
    return [name for name in found if name not in (FLEET, "le", "quantile")]


def tables() -> str:
    """A table for each process, by name."""
    return "\n".join(
        line for title, served in PROCESSES.items() for line in _table(title, served())
    )


def _table(title: str, served: Iterable[Metric]) -> Iterator[str]:
    yield from (f"### {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in sorted(served, key=full_name):
        if not metric.name.endswith("_created"):
            shown = ", ".join(f"`{name}`" for name in labels(metric))
            text = metric.documentation.rstrip(".").replace("|", "\\|")
            yield f"| `{full_name(metric)}` | {metric.type} | {shown} | {text} |"
    yield ""
