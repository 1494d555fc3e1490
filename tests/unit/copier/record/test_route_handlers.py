"""The record lane in memory: real Holder, Delivery, lane and chunks, under random faults.

Each record goes to its own partition, to the same partition of a second topic, and to one partition that
all share. Whatever breaks, the process of the handler included, nothing is lost or out of order; while a
partition stays where it is, nothing is repeated either.
"""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.model import HandlerSettings, RouteSettings
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import Line, records, seen
from ureplicator_testkit.copier.line_history import NODES, PARTITIONS, fill, play
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.lifeline.messages import Failed, Released

COPY, SHARED = "u", "v"
BREAKS = ("cut", "silent", "frozen", "down", "heal", "move", "refuse", "wait")
FAULTS = {"exactly": BREAKS, "in order": (*BREAKS, "release", "lose", "lose")}
"""A partition whose process is lost is released, and may have to be without a last commit."""


def new_line(handler: str, args: object = None, **more: object) -> Line:
    text = json.dumps(args or {})
    config = HandlerSettings("t", handler, text, **more)  # type: ignore[arg-type]
    source = MemoryKafka("A", {"t": PARTITIONS}, nodes=NODES)
    target = MemoryKafka("B", {"t": PARTITIONS, COPY: PARTITIONS, SHARED: 1}, nodes=NODES)
    route = RouteSettings(handlers=(config,))
    return Line(source, target, settings=route, buffer_bytes=1 << 20)


def judge(line: Line, promise: str) -> None:
    for number in range(PARTITIONS):
        source = seen(records(line.source, ("t", number)))
        shared = records(line.target, (SHARED, 0))
        ours = b"t/%d/" % number
        of_ours = seen([row for row in shared if (row.value or b"").startswith(ours)])
        copies = [seen(records(line.target, (topic, number))) for topic in ("t", COPY)]
        for found in (*copies, of_ours):
            once = found if promise == "exactly" else list(dict.fromkeys(found))
            assert once == source


@pytest.mark.parametrize("promise", sorted(FAULTS))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_all_targets_hold_the_same_in_the_end(promise: str, data: st.DataObject) -> None:
    line = new_line("ureplicator_testkit.copier.sample_handlers:three", {"others": [COPY, SHARED]})
    try:
        play(line, data, FAULTS[promise], check)
        judge(line, promise)
        assert line.pool.used_bytes == 0
    finally:
        line.close()


def check(line: Line) -> None:
    for message in line.sent:
        assert not isinstance(message, Failed) or "lost by the test" in message.reason
    check_committed(line)


def check_committed(line: Line) -> None:
    """No position has passed a record that one of its targets lacks."""
    shared = set(seen(records(line.target, (SHARED, 0))))
    for partition, committed in line.ownership.stored.items():
        source = records(line.source, ("t", partition.number))
        due = set(seen([row for row in source if row.offset < committed]))
        for topic in ("t", COPY):
            assert due <= set(seen(records(line.target, (topic, partition.number))))
        assert due <= shared


def test_a_process_that_does_nothing_holds_up_neither_other_topics_nor_a_release() -> None:
    line = new_line("ureplicator_worker.handlers:identity")
    try:
        (partition,) = line.add(0)
        line.run(lambda: bool(processes(line.lane)) and processes(line.lane)[0].ready)
        processes(line.lane)[0].stopped = True
        fill(line, 0, [(0, (0, 1, 2))] * 20, 1_000)
        line.turns(50)
        line.copier.holder.remove(partition)
        line.run(lambda: bool(line.sent))
        assert line.sent == [Released((partition,))]
        assert line.ownership.stored[partition] == 0
    finally:
        line.close()


def test_a_handler_that_cannot_be_made_is_tried_again_with_the_partition() -> None:
    line = new_line("ureplicator_testkit.copier.sample_handlers:raises")
    try:
        (partition,) = line.add(0)
        line.run(lambda: bool(line.sent))
        (failed,) = line.sent
        assert isinstance(failed, Failed)
        assert failed.reason.endswith("cannot be made: RuntimeError: no licence")
        assert not failed.temporary
        line.turns(100)
        assert not processes(line.lane)
        line.sent.clear()
        line.add(partition.number)
        line.run(lambda: bool(line.sent))
    finally:
        line.close()


def test_what_waits_for_the_handler_is_bounded() -> None:
    line = new_line("ureplicator_worker.handlers:identity")
    try:
        line.add(0)
        line.run(lambda: bool(processes(line.lane)) and processes(line.lane)[0].ready)
        processes(line.lane)[0].stopped = True
        fill(line, 0, [(0, (0, 1, 2))] * 200, 1_000)
        line.turns(300)
        assert 0 < line.pool.used_bytes <= line.pool.limit_bytes
    finally:
        line.close()
