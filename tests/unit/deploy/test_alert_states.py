"""Each alert in the states of a fleet in memory: what `/metrics` serves before, during and after one goes
into promtool, with the durations of the rules.

In the state exactly these alerts fire, for this fleet and once, though two controllers serve metrics; before
and after it none does, and none for a healthy fleet beside it in the same Prometheus. The same with processes
and servers is in `tests/integration/monitoring/test_alerts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from ureplicator_common.audits import Differences, TopicAudit, VerifiedRange
from ureplicator_common.kafka import BatchTime, Lifetime
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    RouteSettings,
    WorkerSelection,
    position_group,
)
from ureplicator_common.pages.metrics import FleetRegistry
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import encode_audit_state
from ureplicator_controller.api.lag_collection.cache import FRESH_S
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture
from ureplicator_testkit.deploy.alerts import Course, Series, judged, rule_names, series
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.messages import CopierId, CopierReport, PartitionReport

FLEET = "test"
GROUP = position_group(fleet=FLEET, route=ROUTE)
PARTITION = Partition(ROUTE, "orders", 0)
RETENTION_MS = 10_000_000


class Processes:
    """Two controllers' REST and daemons, the first one's leads, and two workers, of which the first copies,
    as they serve metrics; all is well at first."""

    def __init__(self) -> None:
        self.rest = RestFixture()
        self.control, self.standby = _daemon(), _daemon()
        self.telemetry = Telemetry()
        self.reached = True
        self.rest.clock.advance(RETENTION_MS)  # no time of a record is before 1970
        self.rest.put_leader()
        self.rest.add_worker("w1")
        self.rest.put_intent(
            "orders",
            TopicIntent(1, 1, source_topic_id="s", target_topic_id="t", target_topic="orders"),
        )
        self.rest.place("orders", {0: "w1"})
        self.log = self.rest.logs["source"]
        self.report(PartitionState.ONLINE)
        self.copied_to(100)
        self.copy()

    def report(self, state: PartitionState) -> None:
        self.rest.put_states("w1", "orders", {0: state})

    def copied_to(self, position: int, *, waits_s: int = 0) -> None:
        now_ms = self.rest.clock.wall_ms()
        self.log.hold("orders", 0, 10, 100)
        self.log.logs["orders", 0].times = [BatchTime(position, 99, now_ms - waits_s * 1_000)]
        self.log.lives["orders"] = Lifetime(retention_ms=RETENTION_MS)
        self.rest.positions.put(GROUP, "orders", 0, position)

    def copy(self, *, skipped: int = 0, lag: int = 0) -> None:
        figures = PartitionReport(PartitionState.ONLINE, records=9, skipped=skipped, lag=lag)
        self.telemetry.count(CopierId(0, 1), CopierReport({PARTITION: figures}), {PARTITION})

    def audited(self, found: VerifiedRange) -> None:
        audit = encode_audit_state(TopicAudit("s", "t", {0: found}))
        self.rest.put(self.rest.paths.audits.state(PARTITION.key), audit)

    def scraped(self) -> Series:
        """Series -> value, with the address that Prometheus adds."""
        self.rest.clock.advance(FRESH_S)
        found: dict[str, float] = {}
        for worker in ("w1", "w2"):
            registry = FleetRegistry(FLEET)
            registry.register(_Fixed(self.telemetry.metrics([PARTITION])))
            found |= series(f"{worker}:9010", generate_latest(registry).decode())
        if self.reached:
            for controller, control in (("c1", self.control), ("c2", self.standby)):
                found |= series(f"{controller}:9000", self.rest.call("GET", "/metrics").text)
                found |= series(f"{controller}:9100", generate_latest(control.registry).decode())
        return found


def _daemon() -> ControlMetrics:
    metrics = ControlMetrics(FleetRegistry(FLEET))
    metrics.stopped_topics.labels(str(ROUTE)).set(0)
    return metrics


class _Fixed:
    def __init__(self, metrics: Iterator[Any]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> list[Any]:
        return self._metrics


def beside_a_healthy_fleet(course: Course) -> Course:
    """The same course, in a Prometheus that also scrapes a fleet in which all stays well."""
    name = f'fleet="{FLEET}"'
    assert all(name in metric for metric in course.calm)
    healthy = {
        metric.replace(name, 'fleet="healthy"'): value for metric, value in course.calm.items()
    }
    return Course(
        {**course.calm, **healthy}, {**course.during, **healthy}, {**course.after, **healthy}
    )


# --- States


def no_leader(fleet: Processes) -> None:
    fleet.rest.other_client.close()  # its ephemeral nodes end: leader and worker


@contextmanager
def unreached(fleet: Processes) -> Iterator[None]:
    fleet.reached = False
    yield
    fleet.reached = True


@contextmanager
def lacks_workers(fleet: Processes) -> Iterator[None]:
    fleet.rest.publish(RouteSettings(workers=WorkerSelection(("nowhere",))))
    yield
    fleet.rest.publish(RouteSettings())


def no_zookeeper(fleet: Processes) -> AbstractContextManager[None]:
    return fleet.rest.zookeeper_unavailable()


@contextmanager
def in_error(fleet: Processes) -> Iterator[None]:
    fleet.report(PartitionState.ERROR)
    yield
    fleet.report(PartitionState.ONLINE)


@contextmanager
def offline(fleet: Processes) -> Iterator[None]:
    fleet.report(PartitionState.OFFLINE)
    yield
    fleet.report(PartitionState.ONLINE)


@contextmanager
def behind(fleet: Processes) -> Iterator[None]:
    fleet.copied_to(40, waits_s=1_000)
    yield
    fleet.copied_to(100)


@contextmanager
def retention_near(fleet: Processes) -> Iterator[None]:
    fleet.copied_to(40, waits_s=7_000)
    yield
    fleet.copied_to(100)


@contextmanager
def transaction_open(fleet: Processes) -> Iterator[None]:
    fleet.log.hold("orders", 0, 10, 5_000)
    fleet.log.logs["orders", 0].open_from = 100
    fleet.scraped()
    fleet.rest.clock.advance(1_000)
    yield
    fleet.log.logs["orders", 0].open_from = None
    fleet.copied_to(100)


@contextmanager
def no_progress(fleet: Processes) -> Iterator[None]:
    held = {PARTITION: HeldPartition(0, OwnerEpoch(1), phase=PartitionPhase.ONLINE)}
    fleet.copy(lag=4)
    for now_s in (0.0, 700.0):
        fleet.telemetry.loads(held, now_s)
    yield
    fleet.copy(lag=0)
    fleet.telemetry.loads(held, 701.0)


@contextmanager
def copy_differs(fleet: Processes) -> Iterator[None]:
    now_ms = fleet.rest.clock.wall_ms()
    equal = VerifiedRange(10, 20, now_ms)
    found = replace(equal, differences=Differences(12, 14, {"missing": 2}))
    fleet.audited(found)
    yield
    fleet.audited(equal)


@contextmanager
def lag_unknown(fleet: Processes) -> Iterator[None]:
    log = fleet.log.logs.pop(("orders", 0))
    yield
    fleet.log.logs["orders", 0] = log


@contextmanager
def skipped(fleet: Processes) -> Iterator[None]:
    fleet.copy(skipped=1)
    yield


def gauge(name: str, *labels: str) -> Callable[[Processes], AbstractContextManager[None]]:
    """A figure of the daemon that is 0 while all is well."""

    @contextmanager
    def state(fleet: Processes) -> Iterator[None]:
        found = getattr(fleet.control, name)
        shown = found.labels(*labels) if labels else found
        shown.set(1)
        yield
        shown.set(0)

    return state


def counter(name: str) -> Callable[[Processes], AbstractContextManager[None]]:
    @contextmanager
    def state(fleet: Processes) -> Iterator[None]:
        getattr(fleet.control, name).inc()
        yield

    return state


STATES: Mapping[str, tuple[Callable[[Processes], AbstractContextManager[None]], set[str]]] = {
    "no controller": (unreached, {"ControllersGone"}),
    "no ZooKeeper": (no_zookeeper, {"ZooKeeperUnavailable"}),
    "in error": (in_error, {"PartitionsInError", "Mismatches"}),
    "offline": (offline, {"Mismatches"}),
    "behind": (behind, {"Behind"}),
    "retention near": (retention_near, {"RecordsWillBeLost", "Behind"}),
    "transaction open": (transaction_open, {"TransactionOpen"}),
    "no progress": (no_progress, {"NoProgress"}),
    "copy differs": (copy_differs, {"CopyDiffers"}),
    "lag unknown": (lag_unknown, {"LagUnknown"}),
    "skipped": (skipped, {"RecordsSkipped"}),
    "stopped topics": (gauge("stopped_topics", "source.target"), {"TopicsStopped"}),
    "brake": (gauge("braked"), {"BrakeHeld"}),
    "violation": (counter("invariant_violations"), {"InvariantViolated"}),
    "lacks workers": (lacks_workers, {"RouteLacksWorkers"}),
    "eviction": (counter("evictions"), {"WorkerEvicted"}),
}

ALONE = ("no controller", "no ZooKeeper", "in error")
"""States that are judged also in a Prometheus that scrapes this fleet alone: with two of them no series is
left, or few are."""


@pytest.fixture
def fleet() -> Iterator[Processes]:
    fleet = Processes()
    yield fleet
    fleet.rest.close()


@pytest.mark.parametrize("name", STATES)
def test_exactly_the_alerts_of_a_state_fire_and_resolve(
    name: str, fleet: Processes, tmp_path: Path
) -> None:
    state, alerts = STATES[name]
    calm = fleet.scraped()
    with state(fleet):
        during = fleet.scraped()
    after = fleet.scraped()
    course = Course(calm, during, after)
    assert judged(beside_a_healthy_fleet(course), alerts, tmp_path, fleet=FLEET) == ""
    if name in ALONE:
        assert judged(course, alerts, tmp_path, fleet=FLEET) == ""


def test_a_fleet_without_a_leader(fleet: Processes, tmp_path: Path) -> None:
    calm = fleet.scraped()
    no_leader(fleet)
    during = fleet.scraped()
    course = beside_a_healthy_fleet(Course(calm, during, calm))
    assert judged(course, {"NoLeader", "Mismatches"}, tmp_path, fleet=FLEET) == ""


def test_a_prometheus_that_scrapes_no_fleet(tmp_path: Path) -> None:
    """A monitor that selects nothing: one alert, at each of three checks; there is no fleet to name."""
    nothing: Series = {"up": 1.0}
    verdict = judged(Course(nothing, nothing, nothing), (), tmp_path, fleet=FLEET)
    assert verdict.count('got: {alertname="UReplicatorControllersGone"} 1E+00\n') == 3


def test_every_alert_is_of_a_state() -> None:
    fired = {alert for _, alerts in STATES.values() for alert in alerts} | {"NoLeader"}
    assert fired == rule_names()
