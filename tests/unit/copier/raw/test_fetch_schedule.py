"""Requests composed from what has changed fetch the same as requests composed from everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.client import Broker, ClusterView, Leader
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.line import ROUTE, MakeLine, MemoryMetadata, fill
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.net.connections import (
    NO_VIA,
    Connections,
    Traffic,
    Via,
)
from ureplicator_worker.copier.net.metadata import ViewChanged
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.fetch_schedule import (
    FAR_PARTITION_BYTES,
    LIVE_PARTITION_BYTES,
    MAX_WAIT_MS,
    MIN_LIMITED_BYTES,
    MIN_PARTITION_BYTES,
    MIN_WAIT_MS,
    PARTITION_BYTES,
    PARTITIONS_PER_WAIT_MS,
    FetchSchedule,
    live_wait_ms,
    partition_bytes,
    wanted,
)
from ureplicator_worker.copier.raw.partition import FetchSide
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.wire.fetch_api import FetchResult, Wanted
from ureplicator_worker.wire.topic_keys import TopicKey, TopicKeys

TOPIC_ID = "00000000-0000-0000-0000-000000000001"
VERSION, ROOM, BATCH_BYTES = 16, 100, 60
PARTITIONS, BROKERS = 4, (1, 2)
VIAS = [Via(node, traffic) for node in BROKERS for traffic in (Traffic.LIVE, Traffic.BACKLOG)]
MOST_EXAMINED = 3
OK = FetchResult(0, 0, 7, [])
LOST = FetchResult(0, 70, 0, [])


def fetch_side(number: int) -> FetchSide:
    return FetchSide(
        partition=Partition(ROUTE, "t", number),
        topic_partition=("t", number),
        keys=TopicKeys.of("t", TOPIC_ID, number),
        verify_crc=True,
        window=SendWindow(position=0, leader_epoch=-1),
        offset=0,
        leader_epoch=-1,
    )


def target_node(fetch: FetchSide) -> int:
    return fetch.partition.number % 2


@dataclass
class Cluster:
    """The schedule, and what each broker fetches in its session, from the requests alone."""

    leaders: dict[tuple[str, int], Leader] = field(default_factory=dict)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.connections = Connections(
            MemoryMetadata(MemoryKafka("A", {})),
            pool=BufferPool(limit_bytes=1 << 20),
            on_response=lambda node_id, context, lease: None,
            on_lost=lambda node_id, lost: None,
            silence_timeout_s=1.0,
        )
        self.schedule = FetchSchedule(self.connections, target_node=target_node)
        self.fetches: dict[int, FetchSide] = {}
        self.sessions: dict[Via, dict[TopicKey, Wanted]] = {via: {} for via in VIAS}
        self.lead(0, 1)

    def lead(self, number: int, node_id: int) -> None:
        epoch = self.leaders.get(("t", number), Leader(-1, 0)).epoch + 1
        self.leaders = {**self.leaders, ("t", number): Leader(node_id, epoch)}
        brokers = {node: Broker(node, "h", node) for node in BROKERS}
        view = ClusterView("c", brokers=brokers, leaders=self.leaders, topic_ids={})
        self.connections.on_metadata(ViewChanged(view, frozenset({"t"})), self.now_s)

    def add(self, number: int) -> None:
        if number not in self.fetches:
            self.fetches[number] = fetch_side(number)
            self.schedule.add(self.fetches[number])

    def finish(self, number: int) -> None:
        fetch = self.fetches.pop(number, None)
        if fetch is not None:
            fetch.finished = True
            self.schedule.remove(fetch)

    def request_all(
        self, target_bytes: int | None = None, *, topic_rooms: Mapping[str, int] | None = None
    ) -> None:
        """A request to each broker that is fetched from, and a response without data."""
        by_via = self.schedule.scan(
            self.now_s, target_bytes=target_bytes, topic_rooms=topic_rooms or {}
        )
        by_via.pop(NO_VIA, None)
        for via, due in by_via.items():
            assert due or self.schedule.broker(via).partitions, "not to be connected to"
            broker = self.schedule.compose(via, due, version=VERSION, room_bytes=ROOM)
            broker.request(correlation_id=1, max_wait_ms=1, max_bytes=1)
            self.sessions[via] = dict(broker.known)
            broker.on_response(OK)

    @property
    def all_confirmed(self) -> bool:
        """The response of each broker cleared the errors of what it was requested for."""
        fetched = [fetch for fetch in self.fetches.values() if fetch.via in VIAS]
        return all(fetch.fetching and not fetch.error for fetch in fetched)

    @property
    def waiting(self) -> int:
        return sum(not fetch.window.empty for fetch in self.fetches.values())

    def expected(self, target_bytes: int | None) -> dict[Via, dict[TopicKey, Wanted]]:
        held_bytes = dict.fromkeys((0, 1), 0)
        for fetch in self.fetches.values():
            held_bytes[target_node(fetch)] += fetch.window.queued_bytes
        sessions: dict[Via, dict[TopicKey, Wanted]] = {via: {} for via in VIAS}
        for number, fetch in self.fetches.items():
            leader = self.connections.leader("t", number)
            full = fetch.window.queued_bytes >= ROOM
            full |= target_bytes is not None and held_bytes[target_node(fetch)] > target_bytes
            if leader.node_id < 0 or fetch.suspended or fetch.retry_at_s > self.now_s or full:
                continue
            live = self.now_s >= fetch.backlog_until_s
            via = Via(leader.node_id, Traffic.LIVE if live else Traffic.BACKLOG)
            max_bytes = LIVE_PARTITION_BYTES if live else partition_bytes(ROOM, far=False)
            sessions[via][fetch.keys.by_id] = wanted(
                fetch, leader_epoch=leader.epoch, max_bytes=max_bytes
            )
        return sessions


NUMBERS = st.integers(0, PARTITIONS - 1)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["add", "finish", "data", "data", "data", "sent", "retry"]), NUMBERS),
    st.tuples(st.sampled_from(["suspend", "resume", "seek", "backlog"]), NUMBERS),
    st.tuples(st.just("lead"), st.tuples(NUMBERS, st.sampled_from((*BROKERS, -1)))),
    st.tuples(st.sampled_from(["lost", "refused"]), st.sampled_from(VIAS)),
    st.tuples(st.just("time"), st.floats(0.1, 2)),
    *[st.tuples(st.just("request"), st.sampled_from([None, BATCH_BYTES]))] * 3,
)


def happens(cluster: Cluster, event: str, what: object) -> None:
    match event, what:
        case "lead", (int(number), int(node_id)):
            cluster.lead(number, node_id)
        case "lost", Via() as via:
            cluster.schedule.forget_session(via)
            cluster.sessions[via] = {}
        case "refused", Via() as via if cluster.sessions[via]:
            refuse(cluster, via)
        case "time", float(passed_s):
            cluster.now_s += passed_s
        case "request", (int() | None) as target_bytes:
            cluster.request_all(target_bytes)
        case "add", int(number):
            cluster.add(number)
        case "finish", int(number):
            cluster.finish(number)
        case _, int(number) if number in cluster.fetches:
            change(cluster, event, cluster.fetches[number])


def refuse(cluster: Cluster, via: Via) -> None:
    """Note the error of a whole response, as `Source` does."""
    broker = cluster.schedule.broker(via)
    broker.on_response(LOST)
    for fetch in broker.partitions.values():
        fetch.fetching, fetch.error = False, "lost"


def change(cluster: Cluster, event: str, fetch: FetchSide) -> None:
    assert isinstance(fetch.window, SendWindow)
    match event:
        case "data":
            fetch.window.push(some_batch(fetch.offset))
            fetch.offset += 1
        case "sent":
            fetch.window.discard()
            return  # by the target: the schedule is not informed
        case "retry":
            fetch.retry_at_s = cluster.now_s + 1
        case "suspend" | "resume":
            fetch.suspended = event == "suspend"
        case "seek":
            fetch.offset += 10
        case "backlog":
            fetch.backlog_until_s = cluster.now_s + 1
    cluster.schedule.touch(fetch)


def some_batch(offset: int) -> Batch:
    return Batch(
        memoryview(bytes(BATCH_BYTES)),
        lease=None,
        first_offset=offset,
        next_offset=offset + 1,
        leader_epoch=1,
        records=1,
        max_timestamp_ms=0,
    )


@settings(max_examples=300)
@given(st.lists(EVENTS, min_size=10, max_size=30))
def test_sessions_fetch_what_a_scan_of_everything_would(events: list[tuple[str, object]]) -> None:
    cluster = Cluster()
    for number in range(PARTITIONS):
        cluster.add(number)
    cluster.request_all()
    for event, what in events:
        happens(cluster, event, what)
        if event == "request":
            assert what is None or isinstance(what, int)
            # a broker that leads nothing is not requested again, whatever its session holds
            expected = {node: wants for node, wants in cluster.expected(what).items() if wants}
            assert {node: cluster.sessions[node] for node in expected} == expected
            assert cluster.all_confirmed
            assert cluster.schedule.waiting == cluster.waiting


@pytest.mark.parametrize("quiet", [10, 100])
def test_a_record_costs_the_same_beside_many_quiet_partitions(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch, quiet: int
) -> None:
    line = make(quiet)
    partitions = line.add(*range(quiet))
    for number in range(quiet):
        fill(line, ("t", number), 1)
    line.run(lambda: all(map(line.copied, partitions)))
    examined: list[int] = [0]
    leader, work = Connections.leader, Source.work

    def counted_leader(self: Connections, topic: str, number: int) -> Leader:
        examined[-1] += 1
        return leader(self, topic, number)

    def counted_work(self: Source, now_s: float) -> None:
        with monkeypatch.context() as counting:
            counting.setattr(Connections, "leader", counted_leader)
            examined.append(0)
            work(self, now_s)

    monkeypatch.setattr(Source, "work", counted_work)
    for _ in range(10):
        fill(line, ("t", 0), 1)
        line.run(lambda: line.copied(partitions[0]))
    assert 0 < max(examined) <= MOST_EXAMINED


@pytest.mark.parametrize("quiet", [10, 200])
def test_a_partition_that_moves_costs_the_same_beside_many_quiet_ones(
    monkeypatch: pytest.MonkeyPatch, quiet: int
) -> None:
    """A topic that is added costs the same, too: each makes a new view of the cluster."""
    cluster = Cluster()
    for number in range(quiet):
        cluster.add(number)
        cluster.lead(number, 1)
    cluster.request_all()
    cluster.request_all()
    examined: list[int] = []
    leader = Connections.leader

    def counted(self: Connections, topic: str, number: int) -> Leader:
        examined.append(number)
        return leader(self, topic, number)

    monkeypatch.setattr(Connections, "leader", counted)
    cluster.lead(3, 2)
    cluster.request_all()
    assert set(examined) == {3}
    assert cluster.fetches[3].via.node_id == 2


def test_a_quiet_partition_that_is_suspended_is_fetched_no_more(make: MakeLine) -> None:
    line = make()
    partitions = line.add(0, 1)
    for number in range(2):
        fill(line, ("t", number), 1)
    line.run(lambda: all(map(line.copied, partitions)))
    line.lane.suspend(partitions[0])
    line.turns(3)
    fetched = line.lane._partitions[partitions[0]].fetch.offset
    for number in range(2):
        fill(line, ("t", number), 1)
    line.run(lambda: line.copied(partitions[1]))
    assert line.lane._partitions[partitions[0]].fetch.offset == fetched
    line.lane.resume(partitions[0])
    line.run(lambda: line.copied(partitions[0]))


def test_partitions_of_a_limited_topic_share_its_room_at_each_scan() -> None:
    """Quiet ones share it, too, whose part of a request would not change without a limit."""
    cluster, live = Cluster(), Via(1, Traffic.LIVE)
    cluster.lead(1, 1)
    cluster.add(0)
    cluster.add(1)
    cluster.request_all()
    for room, size in ((200_000, 100_000), (90_000, 45_000), (10, MIN_LIMITED_BYTES)):
        cluster.request_all(topic_rooms={"t": room})
        assert [partition.max_bytes for partition in cluster.sessions[live].values()] == [
            size,
            size,
        ]
    cluster.request_all(topic_rooms={"t": 0})
    assert cluster.schedule.broker(live).partitions == {}
    cluster.request_all()
    cluster.request_all()
    assert len(cluster.sessions[live]) == 2
    assert cluster.schedule.due == 0


@pytest.mark.parametrize(
    ("room_bytes", "near_bytes", "far_bytes"),
    [
        (64 << 20, PARTITION_BYTES, FAR_PARTITION_BYTES),
        (FAR_PARTITION_BYTES - 1, PARTITION_BYTES, PARTITION_BYTES),
        (PARTITION_BYTES - 1, MIN_PARTITION_BYTES, MIN_PARTITION_BYTES),
    ],
)
def test_a_partition_brings_what_there_is_room_for_and_more_from_far_away(
    room_bytes: int, near_bytes: int, far_bytes: int
) -> None:
    assert partition_bytes(room_bytes, far=False) == near_bytes
    assert partition_bytes(room_bytes, far=True) == far_bytes


def test_a_request_for_many_quiet_partitions_is_held_for_longer() -> None:
    held_ms = [live_wait_ms(count) for count in (0, 1, 200, 202, 1_000, 100_000)]
    assert held_ms == [MIN_WAIT_MS, MIN_WAIT_MS, MIN_WAIT_MS, 101, MAX_WAIT_MS, MAX_WAIT_MS]


@pytest.mark.parametrize("quiet", [10, PARTITIONS_PER_WAIT_MS * (MIN_WAIT_MS + 1)])
def test_a_partition_does_not_wait_for_a_request_that_is_held_for_long(
    quiet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins beside those with a backlog, and changes the connection when the request has ended."""
    cluster, held = Cluster(), set[Via]()
    monkeypatch.setattr(cluster.connections, "in_flight", lambda via: int(via in held))
    for number in range(quiet + 1):
        cluster.lead(number, 1)
    for number in range(quiet):
        cluster.add(number)
    cluster.request_all()
    live, backlog = Via(1, Traffic.LIVE), Via(1, Traffic.BACKLOG)
    held.add(live)
    cluster.add(quiet)
    by_via = cluster.schedule.scan(0.0, target_bytes=None)
    (begins_at,) = (via for via, due in by_via.items() if cluster.fetches[quiet] in due)
    assert begins_at == (backlog if quiet > 10 else live)
    cluster.schedule.compose(begins_at, by_via[begins_at], version=VERSION, room_bytes=ROOM)
    held.clear()
    cluster.request_all()
    assert len(cluster.sessions[live]) == quiet + 1
    assert not cluster.sessions[backlog]
