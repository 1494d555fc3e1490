"""A deleted or recreated topic is never mixed with the former one."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Partition, PartitionState
from ureplicator_testkit.copier.line import Line, MakeLine, failure, fill, values
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.produce_rules import MAX_IN_FLIGHT_REQUESTS
from ureplicator_worker.wire import produce_api
from ureplicator_worker.wire.fetch_api import API_KEY, LEADERS, NAMES

K0 = ("t", 0)
OLD, NEW = b"old", b"new"


def put(line: Line, value: bytes, count: int) -> None:
    for _ in range(count):
        line.source.logs[K0].put(batches.batch([(1, b"k", value, ())]))


def copying(line: Line, count: int = 3) -> Partition:
    """The partition, with so many records of the former topic copied."""
    put(line, OLD, count)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    return partition


def recreated_at_once(line: Line, count: int) -> tuple[str, str]:
    """Recreate the topic under the same leader epoch and with more records than before, without new
    metadata."""
    former_id = line.source.topic_ids["t"]
    line.source.delete("t")
    line.source.create("t", 1)
    put(line, NEW, count)
    return former_id, line.source.topic_ids["t"]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_nothing_of_a_recreated_source_topic_is_read(make: MakeLine, count: int) -> None:
    """Be it shorter, as long, or longer; before any metadata show it."""
    line = make(1)
    partition = copying(line)
    former_id, latter_id = recreated_at_once(line, count)
    failed = failure(line)
    assert not failed.temporary
    assert former_id in failed.reason
    assert latter_id in failed.reason
    assert values(line.target, K0) == [OLD] * 3
    assert line.ownership.stored[partition] == 3


def test_what_was_read_of_the_former_topic_still_arrives(make: MakeLine) -> None:
    line = make(1)
    partition = copying(line)
    line.target.silent.add(1)
    put(line, OLD, 5)
    line.run(lambda: line.report(partition).lag == 5)
    line.turns(5)
    recreated_at_once(line, 50)
    line.turns(5)
    line.target.silent.clear()
    line.target.cut(1)
    assert "recreated" in failure(line).reason
    assert values(line.target, K0) == [OLD] * 8
    assert line.ownership.stored[partition] == 8


def test_brokers_without_topic_ids_are_fetched_by_name(make: MakeLine) -> None:
    """Only the metadata show that a topic was recreated: what came since they were read is not sent any
    more."""
    line = make(1)
    line.source.newest = {API_KEY: NAMES}
    partition = copying(line)
    assert {request.version for request in line.source.requests} == {NAMES}
    recreated_at_once(line, 50)
    line.source_metadata.refresh()
    assert "recreated" in failure(line).reason
    assert values(line.target, K0) == [OLD] * 3
    assert line.ownership.stored[partition] == 3


def test_topics_without_ids_are_fetched_by_name(make: MakeLine) -> None:
    """A cluster in the middle of an upgrade: its brokers could, its topics cannot."""
    line = make(1)
    line.source.topic_ids["t"] = "00000000-0000-0000-0000-000000000000"
    copying(line)
    assert {request.version for request in line.source.requests} == {NAMES}


def test_an_upgraded_broker_is_fetched_by_id(make: MakeLine) -> None:
    line = make(1)
    line.source.newest = {API_KEY: NAMES}
    partition = copying(line)
    line.source.newest = {API_KEY: LEADERS}
    line.source.cut(1)
    put(line, OLD, 1)
    line.run(lambda: line.copied(partition))
    assert line.source.requests[-1].version == LEADERS
    assert values(line.target, K0) == [OLD] * 4


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_deleted_topic_is_reported_as_deleted(make: MakeLine, end: str) -> None:
    line = make(1)
    copying(line)
    getattr(line, end).delete("t")
    getattr(line, f"{end}_metadata").refresh()
    failed = failure(line)
    assert failed.reason == f"{end} topic t was deleted"
    assert failed.temporary


def test_an_unknown_id_is_no_deletion_while_the_metadata_have_it(make: MakeLine) -> None:
    """A new leader may not know its partitions yet."""
    line = make(1)
    partition = copying(line)
    line.source.refuse[K0] = deque([ErrorCode.UNKNOWN_TOPIC_ID] * 3)
    put(line, OLD, 1)
    line.run(lambda: line.report(partition).state is PartitionState.ERROR)
    assert "UNKNOWN_TOPIC_ID" in line.report(partition).reason
    line.run(lambda: line.copied(partition))
    assert not line.sent
    assert line.report(partition).state is PartitionState.ONLINE


def test_a_recreated_target_topic_gets_nothing_of_the_former(make: MakeLine) -> None:
    """Produce names the topic's id; whoever fills the new one, and however far."""
    line = make(1)
    partition = copying(line)
    line.target.delete("t")
    line.target.create("t", 1)
    put(line, OLD, 20)
    line.run(lambda: bool(line.target.requests[-1].version == produce_api.IDS))
    line.target_metadata.refresh()
    assert failure(line).reason.startswith("target topic t was recreated")
    assert line.target.logs[K0].taken == []
    assert line.ownership.stored[partition] == 3


def test_a_recreated_target_topic_gets_no_more_than_was_on_its_way(make: MakeLine) -> None:
    """Brokers below 4.1 know topics by name only: but the offsets of a new log start again at 0."""
    line = make(1)
    line.target.newest = {produce_api.API_KEY: produce_api.LEADERS}
    partition = copying(line)
    line.target.delete("t")
    line.target.create("t", 1)
    fill(line, K0, 20)
    failed = failure(line)
    assert "target lost offsets 0 to 2, or its topic was recreated" in failed.reason
    assert line.ownership.stored[partition] == 3 + 4
    assert len(line.target.logs[K0].taken) <= MAX_IN_FLIGHT_REQUESTS


def test_a_quiet_recreated_target_topic_is_found_by_the_metadata(make: MakeLine) -> None:
    line = make(1)
    copying(line)
    former_id = line.target.topic_ids["t"]
    line.target.delete("t")
    line.target.create("t", 1)
    line.target_metadata.refresh()
    failed = failure(line)
    assert failed.reason.startswith("target topic t was recreated")
    assert former_id in failed.reason


@pytest.mark.parametrize("added_again", [False, True])
def test_late_responses_of_a_failed_partition_are_ignored(
    make: MakeLine, added_again: bool
) -> None:
    """Several requests are in flight when the first response fails the partition and it is released.

    The other responses arrive later, also for a partition that was added again meanwhile.
    """
    line = make(1)
    line.target.newest = {produce_api.API_KEY: produce_api.LEADERS}
    fill(line, K0, 20)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.target.one_at_a_time = True
    line.target.delete("t")
    line.target.create("t", 1)
    fill(line, K0, 10, size=400_000)
    failed = failure(line)
    assert "or its topic was recreated" in failed.reason
    if added_again:
        line.ownership.ends.clear()
        line.add(0)
    line.turns(100)
    assert line.sent == [failed]
