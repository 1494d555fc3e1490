"""Positions set, seeded and forgotten while a topic is copied: exactly the records that follow from it.

A record's value is its offset, so the copy shows where copying went on each time. Partition 1 has the same
records and is never changed.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    delete_records,
    offsets,
    produce,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

CHANGED_S = 30.0
COPIED_S = 40.0
PARTITIONS = 2


class Copy:
    """A topic under way. `parts`: what the copy of partition 0 must hold, one piece after the other."""

    def __init__(
        self, fleet: Fleet, source: KafkaCluster, target: KafkaCluster, topic: str
    ) -> None:
        self.fleet, self.source, self.target, self.topic = fleet, source, target, topic
        self.parts: list[range] = []
        self._begun_at = 0
        self._next = itertools.count()
        create_topic(source.bootstrap, topic, partitions=PARTITIONS)
        self.fill(500)
        fleet.whitelist(topic)
        fleet.wait_online(topic, PARTITIONS)

    def fill(self, count: int) -> None:
        values = [b"%d" % number for number in itertools.islice(self._next, count)]
        produce(
            self.source.bootstrap,
            self.topic,
            [NewRecord(value, None, number) for value in values for number in range(PARTITIONS)],
        )

    def filling(self) -> AbstractContextManager[None]:
        """Records arrive meanwhile."""
        return repeating(lambda: self.fill(20))

    def shown(self, number: int = 0) -> Any:
        path = f"/positions/{self.topic}?partition={number}"
        return self.fleet.rest("GET", path)["partitions"][0]

    def request(self, **body: Any) -> Any:
        """Set the position of partition 0."""
        return self.fleet.rest("POST", f"/positions/{self.topic}", json={"partition": 0, **body})

    def recorded(self) -> list[str]:
        """Requests of the changes in the history, the latest one first."""
        path = f"/history?topic={self.topic}&kind=position"
        return [event["request"] for event in self.fleet.rest("GET", path)["history"]]

    def wait_changed(
        self, requested: Any, *, ended_at: int | None = None, begins_at: int | None = None
    ) -> None:
        """The change is done: copying ended at the position replaced, and goes on at the new one."""

        def done() -> Any:
            change = self.shown()["change"]
            same = change is not None and change["request"] == requested["request"]
            return change if same and change["outcome"] != "pending" else None

        change = eventually(done, CHANGED_S, "the request has an outcome")
        assert change["outcome"] == "done", change
        eventually(
            lambda: requested["request"] in self.recorded(),
            CHANGED_S,
            "it is in the history: a next request may replace it before the leader looks",
        )
        replaced = change["replaced"] if ended_at is None else ended_at
        self.parts.append(range(self._begun_at, replaced))
        self._begun_at = change["position"] if begins_at is None else begins_at

    def copied(self, number: int = 0) -> list[int]:
        return [
            int(record.value or b"")
            for record in read_all(self.target.bootstrap, self.topic)[number]
        ]

    def wait_copied(self) -> None:
        """Wait until both partitions hold what they must, and nothing else."""
        end = offsets(self.source.bootstrap, self.topic)[0][1]
        wanted = [*itertools.chain(*self.parts), *range(self._begun_at, end)]
        eventually(lambda: len(self.copied()) >= len(wanted), COPIED_S, "partition 0 is copied")
        assert self.copied() == wanted
        eventually(lambda: len(self.copied(1)) >= end, COPIED_S, "partition 1 is copied")
        assert self.copied(1) == list(range(end))


@pytest.fixture
def delivery() -> str:
    """A test may be parametrized by it."""
    return Delivery.AT_LEAST_ONCE


@pytest.fixture
def copy(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    delivery: str,
) -> Copy:
    running.change({"delivery": delivery})
    return Copy(running, source_cluster, target_cluster, topic)


def commit_group(cluster: KafkaCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("delivery", Delivery)
def test_positions_are_changed_under_load(copy: Copy) -> None:
    with copy.filling():
        copy.wait_changed(copy.request(offset=100))
        copy.wait_changed(copy.request(to="latest"))
        commit_group(copy.source, f"{copy.topic}-readers", copy.topic, 250)
        copy.wait_changed(copy.request(group=f"{copy.topic}-readers"))
        forgotten = copy.fleet.rest("DELETE", f"/positions/{copy.topic}?partition=0")
        copy.wait_changed(forgotten, begins_at=0)
    copy.wait_copied()
    assert len(copy.recorded()) == 4
    assert copy.recorded()[0] == forgotten["request"]


def test_a_dry_run_shows_exactly_what_a_paused_topic_skips(copy: Copy) -> None:
    copy.wait_copied()
    copy.fleet.rest("POST", f"/topics/{copy.topic}/pause")
    eventually(lambda: not copy.shown()["heldBy"], CHANGED_S, "it is released")
    copy.fill(300)
    path = f"/positions/{copy.topic}?dry_run=true"
    planned = copy.fleet.rest("POST", path, json={"offset": 700, "partition": 0})["partitions"][0]
    assert (planned["from"], planned["to"], planned["repeated"], planned["skipped"]) == (
        500,
        700,
        0,
        200,
    )
    assert copy.shown()["change"] is None
    copy.wait_changed(copy.request(offset=700))
    assert copy.fleet.topic(copy.topic)["effectiveState"] == "paused"
    copy.fleet.rest("POST", f"/topics/{copy.topic}/resume")
    copy.wait_copied()


def test_a_leader_that_dies_in_the_middle_leaves_the_request_to_the_next(copy: Copy) -> None:
    """It may die after its commit and before it has written the outcome, which then is of the second."""
    copy.wait_copied()
    fleet = copy.fleet
    leader = fleet.leader()
    with fleet.calling(fleet.follower_of(leader)):
        requested = copy.request(offset=50)
        eventually(lambda: not copy.shown()["heldBy"], CHANGED_S, "it is taken")
        fleet.controllers[leader].kill_tree()
        copy.fill(100)
        copy.wait_changed(requested, ended_at=500)
        copy.wait_copied()


def test_a_partition_that_is_out_of_range_gets_a_position_of_its_own(copy: Copy) -> None:
    """`on_gap` of the route is `stop`: the partition is in ERROR until it gets one."""
    copy.wait_copied()
    copy.fleet.rest("POST", f"/topics/{copy.topic}/pause")
    eventually(lambda: not copy.shown()["heldBy"], CHANGED_S, "it is released")
    copy.fill(300)
    delete_records(copy.source.bootstrap, copy.topic, {0: 600})
    copy.fleet.rest("POST", f"/topics/{copy.topic}/resume")

    def reason() -> str:
        found = copy.fleet.topic(copy.topic)["mismatches"]
        return next(
            (mismatch["reason"] for mismatch in found if "out of range" in mismatch["reason"]), ""
        )

    eventually(reason, COPIED_S, "it is out of range")
    assert "the source begins at 600" in copy.shown()["reason"]
    refused = copy.fleet.call(
        "POST", f"/positions/{copy.topic}", json={"offset": 599, "partition": 0}
    )
    assert refused.status_code == 400
    copy.wait_changed(copy.request(to="earliest"))
    copy.wait_copied()


def test_a_topic_goes_on_where_another_replicator_stopped(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """The steps of docs/mirrormaker.md: its copy exists, and the route is paused until positions are set."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    every = [NewRecord(b"%d" % number) for number in range(100)]
    for bootstrap, some in ((source, every), (target, every[:60])):
        create_topic(bootstrap, topic, partitions=1)
        produce(bootstrap, topic, some)
    running.rest("POST", "/routes/source.target/pause")
    running.whitelist(topic)
    running.rest("POST", f"/positions/{topic}", json={"partition": 0, "offset": 60})
    path = f"/positions/{topic}"
    eventually(
        lambda: running.rest("GET", path)["partitions"][0]["position"] == 60,
        CHANGED_S,
        "the position is set while nothing is copied",
    )
    running.rest("POST", "/routes/source.target/resume")
    eventually(lambda: len(read_all(target, topic)[0]) >= 100, COPIED_S, "the rest is copied")
    assert [record.value for record in read_all(target, topic)[0]] == [sent.value for sent in every]
