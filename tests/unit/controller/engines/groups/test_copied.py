"""What was copied of a partition, by its position, the target's log and the offset map."""

from __future__ import annotations

from uuid import UUID

import pytest

from ureplicator_common.kafka import ClusterUnavailable, Extent, Position, topic_id_text
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition, Route
from ureplicator_controller.core.groups.decisions import CopiedPartition, Translate
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import (
    NOT_COPIED,
    OTHER_TOPIC,
    KafkaCopiedReader,
)
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader

ROUTE = Route("a", "b")
KEY, THERE = ("t", 0), ("copy.t", 0)
GROUP = "positions"
ID = UUID(int=3)


class MemoryMap:
    """It knows what was written before the last update, up to the position that is stored."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self) -> None:
        self.updates += 1

    def translate(self, partition: Partition, stored: Position) -> Translate:
        assert partition == Partition(ROUTE, *KEY)
        assert self.updates
        return lambda offset: offset + 7 if offset <= stored.offset else None

    def close(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.positions, self.logs = MemoryPositionReader(), MemoryLogReader()
        self.logs.hold(*THERE, 3, 57)
        self.reader = KafkaCopiedReader(
            route=ROUTE,
            group=GROUP,
            positions=self.positions,
            logs=self.logs,
            map=MemoryMap(),
        )

    def commit(self, offset: int, *, target_end: int = 57, topic_id: UUID = ID) -> None:
        written = Provenance("a", "", str(topic_id), "w", 0, 1, target_end)
        self.positions.groups[GROUP].positions[THERE] = Position(offset, 0, written.encode())

    def read(self, *, stopped: str = "") -> CopiedPartition:
        topic = RouteTopic("t", "copy.t", target_id=topic_id_text(ID), stopped=stopped)
        return self.reader.read({"t": topic}, [KEY])[KEY]


@pytest.fixture
def world() -> World:
    return World()


def test_a_partition_is_named_as_at_the_target(world: World) -> None:
    world.commit(50)
    found = world.read()
    assert (found.target, found.position, found.end) == (THERE, 50, 57)
    assert (found.log, found.reason, found.translate(1)) == (Extent(3, 57), "", 8)


def test_without_a_position_nothing_was_copied(world: World) -> None:
    found = world.read()
    assert (found.position, found.reason) == (None, NOT_COPIED)


def test_a_position_of_another_topic_of_this_name_is_none(world: World) -> None:
    world.commit(50, topic_id=UUID(int=4))
    found = world.read()
    assert (found.position, found.reason) == (None, OTHER_TOPIC)


def test_a_stopped_topic_has_no_position(world: World) -> None:
    world.commit(50)
    found = world.read(stopped="recreated at the source")
    assert found.position is None
    assert "recreated at the source" in found.reason


def test_an_end_that_the_position_does_not_name_is_unknown(world: World) -> None:
    world.commit(50, target_end=-1)
    assert world.read().end is None
    world.positions.put(GROUP, *THERE, 50)
    assert (world.read().position, world.read().end) == (50, None)


def test_a_partition_without_leader_has_no_log_and_says_so(world: World) -> None:
    world.commit(50)
    world.logs.logs.clear()
    found = world.read()
    assert found.log is None
    assert found.reason


def test_a_cluster_that_does_not_respond_is_an_error(world: World) -> None:
    with world.positions.failing(), pytest.raises(ClusterUnavailable):
        world.read()


def test_nothing_wanted_needs_no_request(world: World) -> None:
    assert world.reader.read({}, []) == {}
    assert world.positions.reads == 0
