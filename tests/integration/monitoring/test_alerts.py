"""Each alert on a live fleet: processes and servers are brought into its state and out of it.

What the processes serve at `/metrics` before, during and after the state goes into promtool, with the
durations of the rules. In the state exactly its alerts fire, and before and after it none does. The fleet has
one controller and two workers, of which the second can hang, and a second route from a cluster of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
import requests

from ureplicator_common.coordination import Create
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import OwnerEpoch, Partition, Route, WorkerId
from ureplicator_common.znode_contents import Assignment, AssignmentEntry
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.workers import encode_assignment
from ureplicator_testkit.deploy.alerts import ALERT_FILE, Course, Series, judged, rule_names, series
from ureplicator_testkit.fleet.real_fleet import FORTH, SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    delete_topic,
    produce,
    transaction,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import NotInTimeError, eventually, spawn_ureplicator
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.timeout(300)

OTHER = Route("other", "target")
STATE_S = 90.0
POLL_S = 1.5
"""A poll reads all pages and has promtool evaluate hours: more often, this alone fills a processor."""
REST_TIMEOUT_S, PAGE_TIMEOUT_S = 12.0, 3.0
FASTER = {
    "ureplicator_worker_position_age_seconds) > 600": 5,
    "ureplicator_held_seconds) > 900": 5,
}
"""Conditions of rules and the seconds that tests take in them instead of minutes."""
LARGE = NewRecord(b"x" * 10_000)
SMALL_AT_TARGET = {"max.message.bytes": "2000"}
QUARTER_OF_AN_HOUR_MS = 900_000
HALF_AN_HOUR_MS = 1_800_000
Changed = AbstractContextManager[None]


class LiveFleet:
    """`scraped` is what a Prometheus would have now."""

    def __init__(
        self,
        fleet: Fleet,
        zookeeper: ZooKeeperServer,
        clusters: Mapping[str, KafkaCluster],
        folder: Path,
    ) -> None:
        self.fleet = fleet
        self.zookeeper = zookeeper
        self.clusters = clusters
        self.folder = folder
        self.hang = folder / "hang"
        self.brief = ""
        """A topic that keeps records for half an hour. Controllers read once a minute how long topics do."""
        self._metrics_port = 0

    def start(self) -> None:
        self.fleet.start_worker("w1")
        self.start_second()
        self.fleet.start_controller("c1")
        self.fleet.wait_workers("w1", "w2")
        self.topic("calm", partitions=2)
        self.brief = self.topic("brief", config={"retention.ms": str(HALF_AN_HOUR_MS)})

    def start_second(self) -> None:
        self.fleet.start_worker("w2", hang=self.hang)

    def topic(
        self,
        name: str,
        *,
        route: Route = FORTH,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """A topic that is copied and has no records yet."""
        name = f"{name}-{uuid.uuid4().hex[:6]}"
        source = self.clusters[route.source].bootstrap
        create_topic(source, name, partitions=partitions, config=config)
        self.fleet.whitelist(name, route)
        self.fleet.wait_online(name, partitions)
        return name

    def act(self, method: str, path: str, *, route: Route = FORTH) -> Any:
        """A call about a topic of a route."""
        return self.fleet.rest(method, f"{path}?src={route.source}&dst={route.target}")

    def delete(self, topic: str, *, route: Route = FORTH) -> None:
        self.act("DELETE", f"/topics/{topic}", route=route)
        eventually(
            lambda: self.fleet.call("GET", f"/topics/{topic}").status_code == 404, STATE_S, "gone"
        )

    def wait_copied(self, topic: str) -> None:
        """Wait until the position of the only partition is committed at its end."""
        eventually(
            lambda: self.act("GET", f"/offset/{topic}/0")["lagRecords"] == 0, STATE_S, "copied"
        )

    def scraped(self) -> Series:
        found: dict[str, float] = {}
        for instance, (url, timeout_s) in self._pages().items():
            try:
                response = requests.get(url, timeout=timeout_s)
                response.raise_for_status()
            except requests.RequestException:
                continue
            found |= series(instance, response.text)
        return found

    def is_whole(self, scraped: Series) -> bool:
        """True if every process is among what was scraped."""
        processes = ("c1:9000", "c1:9100", "w1:9010", "w2:9010")
        return all(
            any(f'instance="{process}"' in name for name in scraped) for process in processes
        )

    def _pages(self) -> Mapping[str, tuple[str, float]]:
        """Address and timeout of the metrics of each process; of the daemon the port that REST told last."""
        try:
            response = self.fleet.call("GET", "/controllers", controller="c1")
            if response.ok and "c1" in response.json()["controllers"]:
                self._metrics_port = response.json()["controllers"]["c1"]["metricsPort"]
        except requests.RequestException:
            pass
        daemon = f"http://127.0.0.1:{self._metrics_port}/metrics"
        return {
            "c1:9000": (f"{self.fleet.url('c1')}/metrics", REST_TIMEOUT_S),
            "c1:9100": (daemon, PAGE_TIMEOUT_S),
        } | {
            f"{id}:9010": (f"http://127.0.0.1:{self.fleet.port_of(id)}/metrics", PAGE_TIMEOUT_S)
            for id, worker in self.fleet.workers.items()
            if worker.running
        }


@pytest.fixture(scope="module")
def live(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LiveFleet]:
    folder = tmp_path_factory.mktemp("alerts")
    with ExitStack() as closing:
        zookeeper = closing.enter_context(ZooKeeperServer())
        other = closing.enter_context(KafkaCluster(name="other"))
        name = f"alerts-{uuid.uuid4().hex[:8]}"
        fleet = Fleet(
            name=name,
            folder=folder,
            zookeeper=zookeeper.hosts,
            source=source_cluster.bootstrap,
            target=target_cluster.bootstrap,
            aliases={OTHER.source: "source"},
            security={OTHER.source: {"bootstrap.servers": other.bootstrap}},
            controller={
                "rebalance_delay_s": SESSION_TIMEOUT_S,
                "join_delay_s": 1,
                "handover_timeout_s": 5,
                "max_lost_share": 0.3,
            },
            routes=[
                {"source": FORTH.source, "target": FORTH.target, "workers": {"min": 2}},
                {
                    "source": OTHER.source,
                    "target": OTHER.target,
                    "abort_on_send_failure": False,
                },
            ],
        )
        closing.callback(fleet.kill)
        clusters = {"source": source_cluster, "target": target_cluster, "other": other}
        live = LiveFleet(fleet, zookeeper, clusters, folder)
        live.start()
        yield live


# --- States


@contextmanager
def no_leader(live: LiveFleet) -> Iterator[None]:
    """The daemon is frozen, and its session ends; REST has a process of its own."""
    controller = live.fleet.controllers["c1"]
    controller.send(SIGSTOP)
    try:
        yield
    finally:
        controller.send(SIGCONT)


@contextmanager
def no_controller(live: LiveFleet) -> Iterator[None]:
    live.fleet.controllers["c1"].kill_tree()
    try:
        yield
    finally:
        live.fleet.start_controller("c1")


@contextmanager
def no_zookeeper(live: LiveFleet) -> Iterator[None]:
    live.zookeeper.pause()
    try:
        yield
    finally:
        live.zookeeper.resume()


@contextmanager
def too_large(live: LiveFleet) -> Iterator[None]:
    topic = refusing_topic(live, FORTH)
    try:
        yield
    finally:
        live.delete(topic)


@contextmanager
def skipped(live: LiveFleet) -> Iterator[None]:
    topic = refusing_topic(live, OTHER)
    try:
        yield
    finally:  # a target that takes smaller records is a mismatch at the leader's next look
        live.delete(topic, route=OTHER)


def refusing_topic(live: LiveFleet, route: Route) -> str:
    """A topic whose target refuses a record of the source."""
    name = f"large-{uuid.uuid4().hex[:6]}"
    create_topic(live.clusters[route.source].bootstrap, name)
    create_topic(live.clusters[route.target].bootstrap, name, config=SMALL_AT_TARGET)
    live.fleet.whitelist(name, route)
    live.fleet.wait_online(name, 1)
    produce(live.clusters[route.source].bootstrap, name, [LARGE])
    return name


@contextmanager
def worker_lost(live: LiveFleet) -> Iterator[None]:
    """One of two is more than the share that may be lost."""
    live.fleet.workers["w2"].kill_tree()
    try:
        yield
    finally:
        live.start_second()


@contextmanager
def source_topic_deleted(live: LiveFleet) -> Iterator[None]:
    topic = live.topic("doomed")
    delete_topic(live.clusters["source"].bootstrap, topic)
    try:
        yield
    finally:
        live.delete(topic)


@contextmanager
def copy_differs(live: LiveFleet) -> Iterator[None]:
    """Another producer has written to the target, and an audit finds it when the position is committed."""
    topic = live.topic("foreign")
    for end in ("target", "source"):
        produce(live.clusters[end].bootstrap, topic, [NewRecord(f"{topic}/0/{end}".encode())])
    live.wait_copied(topic)
    config = live.fleet.config_of("audit")
    options = ("--topic", topic, "--route", str(FORTH), "--master", "local[1]")
    audit = spawn_ureplicator("audit", config, *options, log=live.folder / "audit.log")
    assert audit.wait(STATE_S) == 1, "the audit finds no difference"
    try:
        yield
    finally:
        live.delete(topic)


@contextmanager
def behind(live: LiveFleet) -> Iterator[None]:
    """A record waits since a quarter of an hour."""
    with waiting(live, live.topic("late"), age_ms=QUARTER_OF_AN_HOUR_MS):
        yield


@contextmanager
def retention_near(live: LiveFleet) -> Iterator[None]:
    """A record waits that its topic keeps for half an hour."""
    with waiting(live, live.brief, age_ms=0):
        yield


@contextmanager
def waiting(live: LiveFleet, topic: str, *, age_ms: int) -> Iterator[None]:
    source = live.clusters["source"].bootstrap
    now_ms = round(time.time() * 1_000)
    produce(source, topic, [NewRecord(f"{topic}/0/0".encode(), timestamp=now_ms - age_ms)])
    live.wait_copied(topic)
    live.act("POST", f"/topics/{topic}/pause")
    eventually(lambda: not live.fleet.held(topic), STATE_S, "released")
    produce(source, topic, [NewRecord(f"{topic}/0/1".encode(), timestamp=now_ms - age_ms)])
    try:
        yield
    finally:
        live.act("POST", f"/topics/{topic}/resume")


@contextmanager
def transaction_open(live: LiveFleet) -> Iterator[None]:
    """All is copied up to a transaction at the source that stays open."""
    topic = live.topic("open")
    source = live.clusters["source"].bootstrap
    produce(source, topic, [NewRecord(f"{topic}/0/0".encode())])
    with transaction(source, transactional_id=topic) as producer:
        producer.produce(topic, f"{topic}/0/1".encode(), partition=0)
        producer.flush(STATE_S)
        yield


@contextmanager
def source_away(live: LiveFleet) -> Iterator[None]:
    live.topic("away", route=OTHER)
    live.clusters["other"].pause()
    try:
        yield
    finally:
        live.clusters["other"].resume()


@contextmanager
def hanging_worker(live: LiveFleet) -> Iterator[None]:
    """A worker that does not release what is taken from it, while its session lives."""
    live.hang.touch()
    live.fleet.rest("DELETE", "/instances/w2")
    try:
        yield
    finally:
        live.hang.unlink()
        live.fleet.rest("POST", "/instances/w2")
        live.fleet.wait_workers("w2")


@contextmanager
def assigned_twice(live: LiveFleet) -> Iterator[None]:
    """Somebody has edited the tree by hand."""
    topic = live.topic("twice")
    paths, ghost = Paths(live.fleet.name), WorkerId(f"ghost-{uuid.uuid4().hex[:6]}")
    entries = {Partition(FORTH, topic, 0): AssignmentEntry(OwnerEpoch(1))}
    client = ZooKeeperCoordination(hosts=live.zookeeper.hosts, session_timeout_s=10)
    client.connect(30)
    try:
        data = encode_assignment(Assignment(entries))
        client.transact([Create(paths.assignment(ghost), data)])
    finally:
        client.close()
    try:
        yield
    finally:
        live.delete(topic)


@dataclass(frozen=True, slots=True)
class State:
    enter: Callable[[LiveFleet], Changed]
    alerts: frozenset[str]
    faster: bool = False
    """With shorter times in conditions."""


def state(enter: Callable[[LiveFleet], Changed], *alerts: str, faster: bool = False) -> State:
    return State(enter, frozenset(alerts), faster)


STATES = {
    "skipped": state(skipped, "RecordsSkipped"),
    "too large": state(too_large, "PartitionsInError", "Mismatches"),
    "no progress": state(too_large, "PartitionsInError", "Mismatches", "NoProgress", faster=True),
    "source topic deleted": state(
        source_topic_deleted, "TopicsStopped", "Mismatches", "LagUnknown"
    ),
    "behind": state(behind, "Behind"),
    "retention near": state(retention_near, "RecordsWillBeLost"),
    "copy differs": state(copy_differs, "CopyDiffers"),
    "assigned twice": state(assigned_twice, "InvariantViolated"),
    "transaction open": state(transaction_open, "TransactionOpen", faster=True),
    "source away": state(source_away, "LagUnknown", "PartitionsInError", "Mismatches"),
    "no leader": state(no_leader, "NoLeader"),
    "no ZooKeeper": state(no_zookeeper, "ZooKeeperUnavailable"),
    "no controller": state(no_controller, "ControllersGone"),
    "hanging worker": state(hanging_worker, "WorkerEvicted", "RouteLacksWorkers"),
    "worker lost": state(worker_lost, "BrakeHeld", "Mismatches", "RouteLacksWorkers"),
}


@pytest.mark.parametrize("name", STATES)
def test_exactly_the_alerts_of_a_state_fire_and_resolve(
    name: str, live: LiveFleet, tmp_path: Path
) -> None:
    found = STATES[name]
    rules = _faster_rules(tmp_path) if found.faster else ALERT_FILE
    verdict = ""

    def completes(course: Course, alerts: frozenset[str]) -> bool:
        nonlocal verdict
        verdict = judged(course, alerts, tmp_path, fleet=live.fleet.name, rules=rules)
        if not verdict and not live.is_whole(course.after):
            verdict = "not all processes serve metrics"
        return not verdict

    def calm_now() -> tuple[Series, ...]:
        now = live.scraped()
        return (now,) if completes(Course(now, now, now), frozenset()) else ()

    def in_state_now() -> tuple[Series, ...]:
        now = live.scraped()
        return (now,) if completes(Course(calm, now, calm), found.alerts) else ()

    def has_resolved() -> bool:
        return completes(Course(calm, during, live.scraped()), found.alerts)

    try:
        (calm,) = eventually(calm_now, STATE_S, "no alert fires", poll_s=POLL_S)
        with found.enter(live):
            firing = f"{sorted(found.alerts)} fire"
            (during,) = eventually(in_state_now, STATE_S, firing, poll_s=POLL_S)
        eventually(has_resolved, STATE_S, "they resolve", poll_s=POLL_S)
    except NotInTimeError as error:
        pytest.fail(f"{error}\n{verdict}")


def _faster_rules(folder: Path) -> Path:
    rules, text = folder / "rules.yaml", ALERT_FILE.read_text()
    for slow, seconds in FASTER.items():
        assert slow in text
        text = text.replace(slow, f"{slow.rpartition(' ')[0]} {seconds}")
    rules.write_text(text)
    return rules


def test_every_alert_is_of_a_state() -> None:
    assert {alert for case in STATES.values() for alert in case.alerts} == rule_names()
