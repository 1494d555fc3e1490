"""Random faults between two clusters in memory: when they end, both logs hold the same records.

Nothing is lost, repeated or out of order, whatever breaks, as long as a partition stays where it is and
the target forgets no producer. Otherwise records may come twice, but in order, or in any order.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_testkit.copier.line import Line, records, seen
from ureplicator_testkit.copier.line_history import NODES, PARTITIONS, play
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

BREAKS = (
    "cut",
    "cut_after",
    "silent",
    "frozen",
    "down",
    "heal",
    "move",
    "refuse",
    "fenced",
    "wait",
)
FAULTS = {
    "exactly": BREAKS,
    "in order": (*BREAKS, "release", "release"),
    "all": (*BREAKS, "release", "forget", "forget"),
}


def judge(line: Line, promise: str) -> None:
    """Compare whole records: times alone would not distinguish the records of partitions."""
    for number in range(PARTITIONS):
        ours, theirs = (seen(records(kafka, ("t", number))) for kafka in (line.target, line.source))
        match promise:
            case "exactly":
                assert ours == theirs
            case "in order":
                assert list(dict.fromkeys(ours)) == theirs
            case _:
                assert set(ours) == set(theirs)


@pytest.mark.parametrize("promise", sorted(FAULTS))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_both_logs_are_the_same_in_the_end(promise: str, data: st.DataObject) -> None:
    topics = {"t": PARTITIONS}
    line = Line(
        MemoryKafka("A", topics, nodes=NODES),
        MemoryKafka("B", topics, nodes=NODES),
        buffer_bytes=1 << 20,
    )
    try:
        play(line, data, FAULTS[promise], check_committed)
        judge(line, promise)
        assert line.pool.used_bytes == 0
    finally:
        line.close()


def check_committed(line: Line) -> None:
    """The target has everything before a committed position."""
    for partition, committed in line.ownership.stored.items():
        key = (partition.topic, partition.number)
        there = set(seen(records(line.target, key)))
        due = (row for row in records(line.source, key) if row.offset < committed)
        assert there.issuperset(seen(list(due)))
