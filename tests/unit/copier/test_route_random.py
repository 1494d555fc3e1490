"""Random faults between two clusters in memory: when they end, both logs hold the same records.

Nothing is lost, doubled or out of order, whatever breaks, as long as the target forgets no producer.
"""

from collections import deque

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.protocol import ErrorCode
from ureplicator_testkit import batches as b
from ureplicator_testkit.broker import MemoryKafka
from ureplicator_testkit.line import Line, records
from ureplicator_worker.copier import ownership as own

PARTITIONS = 3
NODES = 2
CODES = [
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
]
FAULTS = (
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


def fill(line: Line, number: int, count: int, size: int) -> None:
    log = line.source.logs[("t", number)]
    for _ in range(count):
        log.put(b.batch([(log.end + n, None, b"." * size, ()) for n in range(3)]))


def heal(line: Line) -> None:
    for kafka in (line.source, line.target):
        kafka.silent.clear()
        kafka.frozen.clear()
        kafka.down.clear()
        kafka.cut_after.clear()
        kafka.refuse.clear()


def harm(line: Line, fault: str, data: st.DataObject) -> None:
    kafka: MemoryKafka = getattr(line, data.draw(st.sampled_from(["source", "target"])))
    node = data.draw(st.integers(1, NODES))
    key = ("t", data.draw(st.integers(0, PARTITIONS - 1)))
    match fault:
        case "cut":
            kafka.cut(node)
        case "cut_after":
            kafka.cut_after[node] = data.draw(st.integers(0, 3_000))
        case "silent" | "frozen" | "down":
            getattr(kafka, fault).add(node)
        case "heal":
            heal(line)
        case "move":
            kafka.move(key, node)
        case "refuse":
            codes = data.draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=6))
            kafka.refuse[key] = deque(map(int, codes))
        case "fenced":
            line.ownership.events.append(own.FencedOut())
            for partition in line.copier.report():
                line.ownership.events.append(own.StillOurs(partition))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_both_logs_are_the_same_in_the_end(data: st.DataObject) -> None:
    topics = {"t": PARTITIONS}
    line = Line(
        MemoryKafka("A", topics, nodes=NODES),
        MemoryKafka("B", topics, nodes=NODES),
        buffer_bytes=1 << 20,
    )
    try:
        partitions = line.add(*range(PARTITIONS))
        for _ in range(data.draw(st.integers(1, 12))):
            number = data.draw(st.integers(0, PARTITIONS - 1))
            fill(line, number, data.draw(st.integers(0, 8)), data.draw(st.sampled_from([1, 9_000])))
            harm(line, data.draw(st.sampled_from(FAULTS)), data)
            line.turns(
                data.draw(st.integers(0, 30)), skip_s=data.draw(st.sampled_from([0.01, 0.5]))
            )
            for partition in partitions:
                committed = line.ownership.stored.get(partition, 0)
                there = records(line.target, (partition.topic, partition.number))
                assert committed <= len(there)
        heal(line)
        line.run(lambda: all(map(line.copied, partitions)), skip_s=0.1)
        for number in range(PARTITIONS):
            ours, theirs = (records(kafka, ("t", number)) for kafka in (line.target, line.source))
            assert [r.timestamp_ms for r in ours] == [r.timestamp_ms for r in theirs]
        assert line.pool.used_bytes == 0
    finally:
        line.close()
