"""Leaders and workers are killed while groups are synced: offsets at the target only go on, never too far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.consumers import READ_S, alter_offsets, group_offsets
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    offsets,
    produce,
    produce_in_transaction,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 2
AFTER_EACH = 5
"""Offsets that are written after a process is back, before the next one is killed."""


class Seen(NamedTuple):
    """An offset at the target, and the group's at the source, read later."""

    partition: int
    target: int
    source: int


@pytest.fixture(scope="module", autouse=True)
def another_of_each(lasting: Fleet) -> Iterator[None]:
    """Two controllers and two workers."""
    lasting.start_worker("w2")
    lasting.start_controller("c2")
    lasting.wait_workers("w2")
    yield
    for process in (lasting.workers.pop("w2"), lasting.controllers.pop("c2")):
        process.kill_tree()


@pytest.mark.parametrize("delivery", Delivery)
def test_offsets_never_go_back_nor_past_what_the_group_has_read(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    group: str,
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    create_topic(source, topic, partitions=PARTITIONS)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    numbers = itertools.count()
    seen: list[Seen] = []

    def go_on() -> None:
        """Records and aborted transactions; the group reads all of them."""
        turn = next(numbers)
        some = [
            NewRecord(b"%d-%d" % (turn, n), partition=n % PARTITIONS)
            for n in range(10 * PARTITIONS)
        ]
        produce(source, topic, some)
        produce_in_transaction(source, topic, some, transactional_id=topic, commit=False)
        ends = offsets(source, topic).items()
        alter_offsets(source, group, {(topic, number): end for number, (_, end) in ends})

    def look() -> None:
        there = group_offsets(target, group)
        here = group_offsets(source, group)
        seen.extend(
            Seen(number, row.offset, here[topic, number].offset)
            for (_, number), row in there.items()
        )

    with repeating(go_on, pause_s=0.3), repeating(look, pause_s=0.1):
        for victim in ("leader", "worker"):
            wait_moves(seen)
            kill(running, victim, topic)
        wait_moves(seen)
    assert_forward(seen)
    wait_equal(source, target, topic, group)
    assert_nothing_skipped(seen, source, target, topic)


def kill(fleet: Fleet, victim: str, topic: str) -> None:
    """SIGKILL of the leader, or of a worker that copies; then another one is started in its place."""
    if victim == "leader":
        leader = fleet.leader()
        fleet.controllers.pop(leader).kill_tree()
        fleet.wait_leader(other_than=leader)
        fleet.launch_controller(leader)
    else:
        worker = fleet.owners(topic)[0]
        fleet.workers.pop(worker).kill_tree()
        fleet.wait_online(topic, PARTITIONS)
        fleet.start_worker(worker)


def wait_moves(seen: list[Seen]) -> None:
    """The sync writes again."""
    before = {offset.target for offset in seen}
    eventually(
        lambda: len({offset.target for offset in seen[:]} - before) >= AFTER_EACH,
        READ_S,
        "offsets are written at the target",
    )


def assert_forward(seen: list[Seen]) -> None:
    for number in range(PARTITIONS):
        order = [offset.target for offset in seen if offset.partition == number]
        assert order == sorted(order)


def wait_equal(source: str, target: str, topic: str, group: str) -> None:
    """Wait until the group is behind the last record at the target."""

    def is_there() -> bool:
        copied = {number: log[-1].offset + 1 for number, log in read_all(target, topic).items()}
        found = {number: row.offset for (_, number), row in group_offsets(target, group).items()}
        sizes = [sum(map(len, read_all(at, topic).values())) for at in (source, target)]
        return sizes[0] <= sizes[1] and found == copied

    eventually(is_there, READ_S, "the group is behind the last record")


def assert_nothing_skipped(seen: list[Seen], source: str, target: str, topic: str) -> None:
    """Check that records which the group had not read, when an offset was seen, lie there or behind it."""
    logs = read_all(source, topic), read_all(target, topic)
    for number in range(PARTITIONS):
        here, there = (log[number] for log in logs)
        last = {copied.value: copied.offset for copied in there}
        assert last.keys() == {original.value for original in here}
        for offset in (offset for offset in set(seen) if offset.partition == number):
            behind = [last[record.value] for record in here if record.offset >= offset.source]
            assert offset.target <= min(behind, default=offset.target)
