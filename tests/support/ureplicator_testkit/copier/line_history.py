"""Random histories of one copier between two clusters in memory: records, faults, and their end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import ROUTE, Line
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.messages import FencedOut, OwnershipConfirmed
from ureplicator_worker.lifeline.messages import Failed, Released

PARTITIONS = 3
NODES = 2
HEADERS = (("name", b"1"), ("name", None))
CODES = [
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
]
SHAPES: Sequence[tuple[int, Sequence[int]]] = [
    *((codec, (0, 1, 2)) for codec in batches.CODECS),
    (batches.NONE, (0, 2, 5)),
    (batches.ZSTD, (1, 2, 3)),
]
"""Codec of a batch, and the places of its records: with holes it must be rebuilt."""


def play(
    line: Line, data: st.DataObject, faults: Sequence[str], check: Callable[[Line], None]
) -> None:
    """Fill, harm and copy in turns, then heal and copy everything. `check` is called before each partition
    that ended is added again."""
    partitions = line.add(*range(PARTITIONS))
    for _ in range(data.draw(st.integers(1, 12))):
        number = data.draw(st.integers(0, PARTITIONS - 1))
        shapes = data.draw(st.lists(st.sampled_from(SHAPES), max_size=8))
        fill(line, number, shapes, data.draw(st.sampled_from([1, 1_000])))
        harm(line, data.draw(st.sampled_from(faults)), data)
        line.turns(data.draw(st.integers(0, 30)), skip_s=data.draw(st.sampled_from([0.01, 0.5])))
        check(line)
        add_again(line)
    heal(line)
    while not all(map(line.copied, partitions)):
        line.run(lambda: bool(line.sent) or all(map(line.copied, partitions)), skip_s=0.1)
        check(line)
        add_again(line)


def fill(line: Line, number: int, shapes: Sequence[tuple[int, Sequence[int]]], size: int) -> None:
    """Every record names its partition and its offset, in the value, and the time is its offset."""
    log = line.source.logs[("t", number)]
    for codec, places in shapes:
        rows = [
            (log.end + place, b"key", b"t/%d/%d " % (number, log.end + place) * size, HEADERS)
            for place in places
        ]
        log.put(batches.batch(rows, codec=codec, deltas=places))


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
    key = data.draw(st.sampled_from(sorted(kafka.logs)))
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
            line.ownership.events.post(FencedOut())
            for partition in line.copier.report():
                line.ownership.events.post(OwnershipConfirmed(partition, Position(0)))
        case "release":
            line.copier.holder.remove(Partition(ROUTE, "t", key[1]))
        case "lose":
            for process in processes(line.lane):
                process.lose()
        case "forget":
            line.target.logs[key].forget_producers()


def add_again(line: Line) -> None:
    """Add every released partition again; it starts where it was committed."""
    for message in line.sent:
        assert isinstance(message, Released | Failed)
        gone = message.partitions if isinstance(message, Released) else (message.partition,)
        line.add(*(partition.number for partition in gone))
    line.sent.clear()
