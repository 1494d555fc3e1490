"""Share groups on a real broker of a version that has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups import SHARE, CommittedOffset
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.kafka.wire.request import Request, compact, varint
from ureplicator_controller.core.groups.decisions import SyncState
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_testkit.control.memory_copied import BASE, MemoryCopied
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

VERSION = "4.4.0"
ONE_BROKER = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION = 76, 1
JOIN, LEAVE = 0, -1
MEMBER = "A" * 22


@contextmanager
def share_cluster(name: str) -> Iterator[KafkaCluster]:
    """A cluster whose share coordinator serves.

    The first offset of a share group has the broker create its internal topic and load it, with pauses
    between attempts: seconds, in which requests may exceed their time limit.
    """
    with KafkaCluster(name=name, version=VERSION, properties=ONE_BROKER) as cluster:
        create_topic(cluster.bootstrap, "first-use", partitions=1)
        offsets = {("first-use", 0): CommittedOffset(0)}
        with closing(KafkaConsumerGroups(ClusterClient(cluster.bootstrap))) as groups:

            def serves() -> bool:
                groups.commit({"first-use": offsets}, share={"first-use"})
                groups.listed()
                return groups.offsets(["first-use"]) == {"first-use": offsets}

            eventually(serves, 60, "the share coordinator serves")
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with share_cluster("share") as cluster:
        yield cluster


@pytest.fixture
def groups(cluster: KafkaCluster) -> Iterator[KafkaConsumerGroups]:
    with closing(KafkaConsumerGroups(ClusterClient(cluster.bootstrap))) as groups:
        yield groups


def create_known_topic(cluster: KafkaCluster, topic: str) -> None:
    """Create a topic of two partitions that both coordinators know: later than a broker's metadata has it."""
    create_topic(cluster.bootstrap, topic, partitions=2)
    probe, offsets = f"{topic}-probe", {(topic, 0): CommittedOffset(0)}
    with closing(KafkaConsumerGroups(ClusterClient(cluster.bootstrap))) as groups:

        def known() -> bool:
            return groups.commit({probe: offsets}, share={probe}) == {probe: {}}

        eventually(known, 20, f"the coordinators know {topic}")


@pytest.fixture
def filled(cluster: KafkaCluster, topic: str) -> str:
    """A topic with 50 records on each of two partitions."""
    create_known_topic(cluster, topic)
    produce(cluster.bootstrap, topic, [NewRecord(b"%d" % n, None, n % 2) for n in range(100)])
    return topic


class Undecoded:
    def decode(self, raw: bytes, **_: Any) -> bytes:
        return raw


def heartbeat(cluster: KafkaCluster, group: str, topic: str, epoch: int) -> None:
    """Have a member join a share group, or leave it."""
    body = compact(group) + compact(MEMBER) + struct.pack(">i", epoch)
    body += b"\0" + varint(2) + compact(topic) + b"\0"
    request = Request(SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, body)
    with closing(ClusterClient(cluster.bootstrap)) as client:
        (broker,) = client.view(()).brokers.values()
        client.call(broker, request, Undecoded())


def state(groups: KafkaConsumerGroups, group: str) -> str:
    found = groups.listed().groups.get(group)
    assert found is None or found.kind == SHARE
    return found.state if found else ""


def test_start_offsets_are_set_and_read(groups: KafkaConsumerGroups, filled: str) -> None:
    """A group that does not exist is created."""
    assert groups.listed().share
    wanted = {(filled, 0): CommittedOffset(10), (filled, 1): CommittedOffset(20)}
    other = {(filled, 1): CommittedOffset(5)}
    assert groups.offsets([f"{filled}-a"]) == {f"{filled}-a": {}}
    done = groups.commit(
        {f"{filled}-a": wanted, f"{filled}-b": other}, share={f"{filled}-a", f"{filled}-b"}
    )
    assert done == {f"{filled}-a": {}, f"{filled}-b": {}}
    eventually(lambda: state(groups, f"{filled}-a") == "Empty", 20, "the group is there")
    assert groups.offsets([f"{filled}-a", f"{filled}-b"]) == {
        f"{filled}-a": wanted,
        f"{filled}-b": other,
    }


def test_groups_of_both_kinds_in_one_call(groups: KafkaConsumerGroups, filled: str) -> None:
    offsets = {(filled, 0): CommittedOffset(7)}
    share, consumer = f"{filled}-share", f"{filled}-consumer"
    assert groups.commit({share: offsets, consumer: offsets}, share={share}) == {
        share: {},
        consumer: {},
    }
    listed = groups.listed().groups
    assert (listed[share].kind, listed[consumer].kind) == (SHARE, "")
    assert groups.offsets([share, consumer]) == {share: offsets, consumer: offsets}


def test_a_group_with_a_member_is_refused_and_nothing_is_initialised_before_it_reads(
    cluster: KafkaCluster, groups: KafkaConsumerGroups, filled: str
) -> None:
    group, wanted = f"{filled}-g", {(filled, 0): CommittedOffset(10)}
    heartbeat(cluster, group, filled, JOIN)
    eventually(lambda: state(groups, group) == "Stable", 20, "it has a member")
    assert groups.listed().groups[group].has_members
    assert groups.offsets([group]) == {group: {}}
    assert groups.commit({group: wanted}, share={group}) == {
        group: {(filled, 0): "NON_EMPTY_GROUP"}
    }
    heartbeat(cluster, group, filled, LEAVE)
    eventually(lambda: state(groups, group) == "Empty", 20, "the member has left")
    assert groups.commit({group: wanted}, share={group}) == {group: {}}
    assert groups.offsets([group]) == {group: wanted}


def test_a_consumer_group_of_the_same_name_is_refused(
    groups: KafkaConsumerGroups, filled: str
) -> None:
    offsets = {(filled, 0): CommittedOffset(7)}
    assert groups.commit({filled: offsets}) == {filled: {}}
    (refused,) = groups.commit({filled: offsets}, share={filled}).values()
    assert refused == {(filled, 0): "GROUP_ID_NOT_FOUND"}


def test_a_share_group_fails_over(groups: KafkaConsumerGroups, filled: str) -> None:
    """The source is in memory; a start offset that goes back there is not lowered at the target."""
    chosen = GroupFilter.named([filled])
    topics = {filled: RouteTopic(filled, filled)}
    here = MemoryConsumerGroups()
    survey = Survey(
        RouteClusters(source=here, target=groups, copied=MemoryCopied()), selected=chosen
    )
    for start, state, reached in ((10, SyncState.SYNCED, 10), (5, SyncState.AHEAD, 10)):
        set_to = {(filled, 0): CommittedOffset(start)}
        assert here.commit({filled: set_to}, share={filled}) == {filled: {}}
        (found,) = write(groups, survey.read(topics), may_write=lambda: True)
        assert (found.state, found.share) == (state, True)
        assert groups.listed().groups[filled].kind == SHARE
        assert groups.offsets([filled]) == {filled: {(filled, 0): CommittedOffset(BASE + reached)}}
