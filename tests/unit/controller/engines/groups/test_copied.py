"""Progress in a partition, by its position, the target's log and the offset map."""

from __future__ import annotations

from uuid import UUID

import pytest

from ureplicator_common.kafka import ClusterUnavailable, Extent, Position, topic_id_text
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_controller.core.groups.decisions import CopiedPartition
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import (
    NOT_COPIED,
    OTHER_TOPIC,
    KafkaCopiedReader,
)
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader
from ureplicator_testkit.kafka.offset_maps import MemoryOffsetMaps

ROUTE = Route("a", "b")
KEY, THERE = ("t", 0), ("copy.t", 0)
GROUP = "positions"
ID, SOURCE_ID = UUID(int=3), UUID(int=5)


class World:
    def __init__(self) -> None:
        self.positions, self.logs = MemoryPositionReader(), MemoryLogReader()
        self.logs.hold(*THERE, 3, 57)
        self.source_logs = MemoryLogReader()
        self.source_logs.hold(*KEY, 0, 50)
        self.maps = MemoryOffsetMaps()
        segment = MapSegment(0, 10, 7)
        self.maps.put(Partition(ROUTE, *KEY), segment, topics=(str(SOURCE_ID), str(ID)))
        self.reader = KafkaCopiedReader(
            route=ROUTE,
            group=GROUP,
            positions=self.positions,
            logs=self.logs,
            source_logs=self.source_logs,
            maps=self.maps,
        )

    def commit(self, offset: int, *, target_end: int = 57, topic_id: UUID = ID) -> None:
        written = Provenance("a", str(SOURCE_ID), str(topic_id), "w", 0, 1, target_end, mapped=7)
        self.positions.groups[GROUP].positions[THERE] = Position(offset, 0, written.encode())

    def read(self, *, stopped: str = "", is_raw: bool = True) -> CopiedPartition:
        id = topic_id_text(ID)
        topic = RouteTopic("t", "copy.t", target_id=id, stopped=stopped, is_raw=is_raw)
        return self.reader.read({"t": topic}, [KEY])[KEY]


@pytest.fixture
def world() -> World:
    return World()


def test_a_partition_is_named_as_at_the_target(world: World) -> None:
    world.commit(50)
    found = world.read()
    assert (found.target, found.position, found.end) == (THERE, 50, 57)
    assert (found.log, found.reason) == (Extent(3, 57), "")


def test_a_position_that_is_not_shown_is_no_reason_for_other_topics(world: World) -> None:
    world.commit(50)
    world.positions.put(GROUP, "copy.u", 0, 7)
    world.positions.groups[GROUP].unreadable["copy.u"] = "TOPIC_AUTHORIZATION_FAILED"
    topics = {name: RouteTopic(name, f"copy.{name}") for name in ("t", "u")}
    found = world.reader.read(topics, [KEY, ("u", 0)])
    assert (found[KEY].position, found[KEY].reason) == (50, "")
    refused = found["u", 0]
    assert (refused.position, refused.reason) == (None, "copy.u/0: TOPIC_AUTHORIZATION_FAILED")
    assert refused.translate(7) is None


def test_the_newest_segment_holds_up_to_the_position_that_is_stored(world: World) -> None:
    world.commit(50)
    found = world.read()
    assert [found.translate(offset) for offset in (1, 10, 49, 50)] == [8, 17, 56, 57]


def test_the_distance_is_constant_in_the_segment_of_the_last_record(world: World) -> None:
    world.maps.put(
        Partition(ROUTE, *KEY),
        MapSegment(0, 10, 0),
        MapSegment(12, 20, 10),
        topics=(str(SOURCE_ID), str(ID)),
    )
    written = Provenance("a", str(SOURCE_ID), str(ID), "w", 0, 1, 48, mapped=10)
    world.positions.groups[GROUP].positions[THERE] = Position(50, 0, written.encode())
    found = world.read()
    assert (found.source_log, found.constant_from) == (Extent(0, 50), 12)


def test_markers_behind_the_last_record_do_not_change_the_distance(world: World) -> None:
    world.commit(50, target_end=55)
    assert world.read().constant_from == 0


def test_records_behind_the_last_segment_end_the_constant_distance(world: World) -> None:
    """The position was committed without the map."""
    written = Provenance("a", str(SOURCE_ID), str(ID), "w", 0, 1, 57)
    world.positions.groups[GROUP].positions[THERE] = Position(50, 0, written.encode())
    assert world.read().constant_from == 50


@pytest.mark.parametrize("open_from", [None, 50])
def test_records_to_be_copied_may_lie_at_another_distance(
    world: World, open_from: int | None
) -> None:
    """Records in an open transaction count, too: some consumers read them."""
    world.source_logs.hold(*KEY, 0, 51)
    world.source_logs.logs[KEY].open_from = open_from
    world.commit(50)
    assert world.read().constant_from is None


def test_a_source_that_does_not_respond_leaves_its_log_unknown(world: World) -> None:
    world.commit(50)
    with world.source_logs.failing():
        found = world.read()
    assert (found.source_log, found.constant_from, found.position) == (None, None, 50)


def test_a_map_of_another_topic_of_this_name_is_not_used(world: World) -> None:
    world.maps.put(Partition(ROUTE, *KEY), MapSegment(0, 10, 7), topics=("other", str(ID)))
    world.commit(50)
    assert world.read().translate(5) is None


def test_handlers_leave_the_end_of_a_partition_open(world: World) -> None:
    """Its log has records of other partitions, too."""
    world.commit(50)
    assert world.read(is_raw=False).end is None


def test_a_map_that_cannot_be_read_is_an_error(world: World) -> None:
    world.commit(50)
    world.maps.failure = ClusterUnavailable("no leader")
    with pytest.raises(ClusterUnavailable):
        world.read()


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
