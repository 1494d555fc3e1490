"""Snapshot, membership times, mismatches, and comparison with the clusters."""

from __future__ import annotations

import random
import time

import pytest

from ureplicator_common.coordination import Node, Stat
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveWorker,
    PartitionLoad,
    TopicIntent,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import encode_live_worker, encode_loads
from ureplicator_controller.core.planning.membership import track_membership
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.state.decoding import DecodeCache, Stored
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.loads import recent_loads
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import Delays, Snapshot, parse
from ureplicator_controller.core.state.topic_tallies import topic_tallies
from ureplicator_controller.core.state.validation_counts import validation_counts
from ureplicator_controller.core.topics.cluster_comparison import compare_with_clusters
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet

PATHS = Paths("test")
KEY = TopicKey(ROUTE, "t")
A, B = WorkerId("a"), WorkerId("b")


def node(data: bytes, mzxid: int = 1) -> Node:
    return Node(data, Stat(version=0, czxid=1, mzxid=mzxid, owner=SessionId(0)))


# Snapshot


def test_unreadable_nodes_are_reported_and_all_others_read() -> None:
    nodes = {
        PATHS.epoch: node(b""),
        PATHS.topic(KEY): node(encode_intent(TopicIntent(1, 1, target_topic="orders"))),
        f"{PATHS.topics}/{ROUTE}/bad": node(b"\x78garbage"),
        f"{PATHS.topics}/no-route/t": node(b"{}"),
        PATHS.worker_live(A): node(b"[]"),
        PATHS.current_state(B): node(b'{"seenZxid": 1, "partitions": {"x": {}}}'),
    }
    seen = parse(nodes, PATHS, fleet="test")
    assert seen.topics.keys() == {KEY}
    assert {finding.path for finding in seen.unreadable_nodes} == set(nodes) - {
        PATHS.epoch,
        PATHS.topic(KEY),
    }
    assert seen.unreadable_topics == {TopicKey(ROUTE, "bad")}
    assert seen.unreadable_workers == {A, B}
    assert A in seen.sessions, "it is alive, whatever its node contains"


def test_cache_decodes_only_changed_nodes() -> None:
    memo = DecodeCache()
    first = {PATHS.topic(KEY): node(encode_intent(TopicIntent(1, 1, target_topic="orders")))}
    one = parse(first, PATHS, fleet="test", cache=memo)
    again = parse(first, PATHS, fleet="test", cache=memo)
    assert again.topics[KEY] is one.topics[KEY]
    second = {
        PATHS.topic(KEY): node(encode_intent(TopicIntent(2, 1, target_topic="orders")), mzxid=2)
    }
    assert parse(second, PATHS, fleet="test", cache=memo).topics[KEY].value.partitions == 2
    assert parse({}, PATHS, fleet="test", cache=memo).topics == {}


def test_a_section_without_changes_is_the_same_object() -> None:
    """It is the same whatever changes elsewhere, and also if nodes are created there."""
    other = TopicKey(ROUTE, "other")
    memo, nodes = (
        DecodeCache(),
        {PATHS.topic(KEY): node(encode_intent(TopicIntent(1, 1, target_topic="orders")))},
    )
    one = parse(nodes, PATHS, fleet="test", cache=memo)
    nodes = {**nodes, PATHS.worker_live(A): node(encode_live_worker(LiveWorker(slots=1)))}
    two = parse(nodes, PATHS, fleet="test", cache=memo)
    assert two.topics is one.topics
    assert two.live.keys() == {A}
    nodes = {**nodes, PATHS.topic(other): node(b"garbage")}
    three = parse(nodes, PATHS, fleet="test", cache=memo)
    assert three.topics.keys() == {KEY}
    assert three.topics[KEY] is one.topics[KEY]
    assert three.unreadable_topics == {other}
    assert three.live is two.live
    nodes[PATHS.topic(other)] = node(
        encode_intent(TopicIntent(3, 3, target_topic="orders")), mzxid=9
    )
    four = parse(nodes, PATHS, fleet="test", cache=memo)
    assert list(four.topics) == [other, KEY]
    assert four.unreadable_nodes == ()
    assert three.topics.keys() == {KEY}, "a snapshot stays as it is"


@pytest.mark.parametrize("seed", range(5))
def test_snapshots_with_a_cache_are_those_without(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    memo, nodes = DecodeCache(), dict[str, Node]()
    keys = [TopicKey(ROUTE, f"t{number}") for number in range(4)]
    for zxid in range(1, 80):
        path = chance.choice(
            [
                *(PATHS.topic(key) for key in keys),
                *(PATHS.ideal_topic(key) for key in keys),
                *(PATHS.worker_live(id) for id in (A, B)),
                f"{PATHS.topics}/no-route/t",
                PATHS.settings,
            ]
        )
        intent, live = (
            encode_intent(TopicIntent(zxid, 1, target_topic="orders")),
            encode_live_worker(LiveWorker(slots=1)),
        )
        data = chance.choice([b"", b"garbage", intent, live, b'{"frozen": true}'])
        if chance.random() < 0.3:
            nodes.pop(path, None)
        else:
            nodes[path] = node(data, zxid)
        cached = parse(dict(nodes), PATHS, fleet="test", cache=memo)
        assert cached == parse(dict(nodes), PATHS, fleet="test")


def test_loads_are_decoded_again_only_when_they_changed() -> None:
    """The fleets read them in each cycle, as with a byte limit, or in some."""

    def seen(rate: float, mzxid: int) -> Snapshot:
        load = encode_loads({Partition(ROUTE, "t", 0): PartitionLoad(bytes_per_s=rate)})
        nodes = {
            PATHS.worker_live(A): node(encode_live_worker(LiveWorker(slots=1))),
            PATHS.measures.load(A): node(load, mzxid),
        }
        return parse(nodes, PATHS, fleet="test", cache=memo)

    memo = DecodeCache()
    one = seen(1.0, 1).loads[A]
    assert seen(1.0, 1).loads[A] is one
    seen(1.0, 1)
    assert seen(1.0, 1).loads[A] is one
    seen(2.0, 2)
    two = seen(2.0, 2).loads[A]
    assert two[Partition(ROUTE, "t", 0)].bytes_per_s == 2.0
    seen(2.0, 2)
    seen(2.0, 2)
    assert seen(2.0, 2).loads[A] is two


def test_recent_loads_are_those_that_were_decoded_for_others() -> None:
    """They are recent as long as the worker has written no more than two since, in the same session."""
    memo, id = DecodeCache(), Partition(ROUTE, "t", 0)

    def seen(version: int, *, owner: int = 7) -> Snapshot:
        data = encode_loads({id: PartitionLoad(bytes_per_s=float(version))})
        live, stat = (
            encode_live_worker(LiveWorker(slots=1)),
            Stat(version, 1, version, SessionId(owner)),
        )
        nodes = {
            PATHS.worker_live(A): Node(live, Stat(0, 1, 1, SessionId(owner))),
            PATHS.measures.load(A): Node(data, stat),
        }
        return parse(nodes, PATHS, fleet="test", cache=memo)

    def rate(snapshot: Snapshot) -> float:
        return recent_loads(snapshot.loads, A)[id].bytes_per_s

    assert rate(seen(5)) == 5, "none was decoded yet"
    assert rate(seen(6)) == 5
    assert rate(seen(7)) == 5
    assert rate(seen(8)) == 8
    assert seen(9).loads[A][id].bytes_per_s == 9
    assert rate(seen(9)) == 9
    assert rate(seen(9, owner=8)) == 9
    assert recent_loads(seen(9).loads, B) == {}


# Presence


def seen_workers(*live: str, rebalance_s: float = 10) -> Snapshot:
    return Snapshot(
        fleet="test",
        epoch=1,
        sessions={WorkerId(id): SessionId(1) for id in live},
        known={id: Stored(KnownWorker(2), 0, 0, SessionId(0)) for id in (A, B)},
        delays=Delays(rebalance_s=rebalance_s),
    )


def test_absence_counts_from_its_first_observation() -> None:
    first = track_membership(Snapshot(fleet="test", epoch=1), seen_workers("a"), 100)
    assert (first.absent_since, first.present_since) == ({B: 100}, {A: 100})
    later = track_membership(first, seen_workers("a"), 105)
    assert later.absent_since == {B: 100}


def test_worker_back_within_the_delay_has_not_joined() -> None:
    snapshot = track_membership(Snapshot(fleet="test", epoch=1), seen_workers("a", "b"), 100)
    snapshot = track_membership(snapshot, seen_workers("a"), 200)
    back = track_membership(snapshot, seen_workers("a", "b"), 209)
    assert back.present_since == {A: 100, B: 100}
    joined = track_membership(snapshot, seen_workers("a", "b"), 210)
    assert joined.present_since == {A: 100, B: 210}


# View


def viewed(
    state: PartitionState, *, by: WorkerId = A, session: int = 1, reason: str = ""
) -> Snapshot:
    partition = Partition(ROUTE, "t", 0)
    reported = CurrentState(5, {partition: CurrentEntry(state, OwnerEpoch(1), reason)})
    ideal = IdealTopic({0: IdealEntry(A, OwnerEpoch(1), 77, "new topic", {A: SessionId(1)})})
    return Snapshot(
        fleet="test",
        epoch=1,
        topics={KEY: Stored(TopicIntent(1, 1, target_topic=KEY.topic), 0, 0, SessionId(0))},
        ideal={KEY: Stored(ideal, 0, 0, SessionId(0))},
        current={by: Stored(reported, 0, 0, SessionId(session))},
        sessions={A: SessionId(1), B: SessionId(1)},
    )


def test_online_at_its_owner_is_no_mismatch() -> None:
    snapshot = viewed(PartitionState.ONLINE)
    view = external_view(snapshot)
    assert mismatches(snapshot, view) == []
    counts = validation_counts(snapshot, topic_tallies(snapshot, view)).as_json()
    assert counts == {
        "numTopics": 1,
        "numTopicPartitions": 1,
        "numOnlineTopicPartitions": 1,
        "numOfflineTopicPartitions": 0,
        "numErrorTopicPartitions": 0,
        "numErrorTopics": 0,
        "numPausedTopicPartitions": 0,
        "numReversedTopicPartitions": 0,
        "numBlacklistedTopicPartitions": 0,
        "numStoppedTopicPartitions": 0,
        "IdealState": {"a": 1, "b": 0},
        "ExternalView": {"a": 1, "b": 0},
    }


def test_error_has_the_workers_reason() -> None:
    snapshot = viewed(PartitionState.ERROR, reason="position lost")
    view = external_view(snapshot)
    (found,) = mismatches(snapshot, view)
    assert (found.reason, found.since_ms) == ("position lost", 77)
    assert (
        validation_counts(snapshot, topic_tallies(snapshot, view)).error,
        validation_counts(snapshot, topic_tallies(snapshot, view)).error_topics,
    ) == (1, 1)


def test_partition_online_on_another_worker_counts_as_offline() -> None:
    snapshot = viewed(PartitionState.ONLINE, by=B)
    view = external_view(snapshot)
    (found,) = mismatches(snapshot, view)
    assert found.reason == "waiting for b to release it"
    assert found.actual == {B: PartitionState.ONLINE}
    assert validation_counts(snapshot, topic_tallies(snapshot, view)).offline == 1


def test_current_state_of_a_former_session_is_ignored() -> None:
    snapshot = viewed(PartitionState.ONLINE, session=9)
    view = external_view(snapshot)
    assert view == {}
    (found,) = mismatches(snapshot, view)
    assert found.reason == "not assigned to worker a yet"


# Difference


def test_comparison_counts_missing_and_mismatched_topics() -> None:
    intents = {
        "same": TopicIntent(2, 2, target_topic="same"),
        "grown": TopicIntent(2, 2, target_topic="grown"),
        "gone": TopicIntent(1, 1, target_topic="gone"),
        "leaving": TopicIntent(1, 1, state=TopicState.DELETING, target_topic="leaving"),
        "renamed": TopicIntent(2, 2, target_topic="copy"),
    }
    source = {name: TopicInfo(2) for name in ("same", "renamed", "other")} | {"grown": TopicInfo(5)}
    target = {"same": TopicInfo(2), "grown": TopicInfo(1), "copy": TopicInfo(2)}
    found = compare_with_clusters(intents, source, target)
    assert found.as_json() == {
        "numMissingTopics": 1,
        "numMismatchedTopics": 1,
        "numMismatchedTopicPartitions": 3,
        "mismatchedTopicPartitions": {"grown": 3},
        "sourceFindings": {},
    }
    assert found.target_findings == {
        "gone": "the target has no topic gone",
        "grown": "target topic grown has 1 of 2 partitions",
    }


# Size


def test_ten_thousand_partitions_on_a_hundred_workers_are_planned_in_time() -> None:
    """The requirement is 200 ms on an idle machine; this only detects another order of magnitude."""
    fleet = ControlFleet()
    stored = {
        TopicKey(Route("a", "b"), f"t{number}"): Stored(
            TopicIntent(100, 100, target_topic="orders"), 0, 0, SessionId(0)
        )
        for number in range(100)
    }
    for number in range(100):
        fleet.worker(f"w{number:02}")
    seen = fleet.observe()
    crowded = Snapshot(
        fleet="test",
        epoch=1,
        topics=stored,
        live=seen.live,
        sessions=seen.sessions,
        present_since=seen.present_since,
    )
    began_s = time.process_time()
    decided = plan(crowded, fleet.now_s)
    assert time.process_time() - began_s < 2.0
    assert len(decided.steps) == 300
