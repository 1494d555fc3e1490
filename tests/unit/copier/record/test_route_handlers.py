"""The record lane in memory: real Holder, Delivery, lane and chunks, under random faults.

Each record goes to its own partition, to the same partition of a second topic, and to one partition that
all share. Whatever breaks, the process of the handler included, nothing is lost or out of order; while a
partition stays where it is, nothing is repeated either.
"""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.model import HandlerSettings, Partition, RouteSettings
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import ROUTE, Line, records, seen
from ureplicator_testkit.copier.line_history import NODES, PARTITIONS, fill, play
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.messages import Commit
from ureplicator_worker.copier.record.handler_scheduler import TASKS_AHEAD
from ureplicator_worker.copier.record.partition import RecordPartition
from ureplicator_worker.copier.record.window import CHUNK_BYTES
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
        assert "cannot be made: RuntimeError: no licence in sample_handlers.py:" in failed.reason
        assert failed.local, "another worker may have what is missing"
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


def test_outputs_that_the_target_does_not_take_are_bounded() -> None:
    """Each record becomes three."""
    line = new_line(f"{MODULE}:three", {"others": [COPY, SHARED]})
    try:
        line.add(0)
        line.run(lambda: bool(processes(line.lane)) and processes(line.lane)[0].ready)
        line.target.silent.update((1, 2))
        fill(line, 0, [(0, (0, 1, 2))] * 400, 1_000)
        (raw,) = line.lane._partitions.values()
        assert isinstance(raw, RecordPartition)
        bound = line.pool.limit_bytes // 4 + TASKS_AHEAD * 3 * CHUNK_BYTES
        for _ in range(300):
            line.turn()
            assert raw.window.output_bytes <= bound
        assert raw.window.output_bytes > 0
        line.target.silent.clear()
        line.run(lambda: line.copied(Partition(ROUTE, "t", 0)), skip_s=0.5)
    finally:
        line.close()


def test_an_exception_stops_its_partition_and_no_other() -> None:
    line = new_line(f"{MODULE}:fails", {"what": "raise", "at": "(?s)t/0/1 .*"})
    try:
        first, second = line.add(0, 1)
        for number in range(2):
            fill(line, number, [(0, (0, 1, 2))], 1)
        line.run(lambda: line.copied(second) and bool(line.sent))
        (failed,) = line.sent
        assert isinstance(failed, Failed)
        assert failed.partition == first
        assert failed.reason.startswith("handler: ValueError: no such customer")
        assert not failed.local
        assert line.ownership.stored[first] == 1
    finally:
        line.close()


def test_hooks_are_called_for_a_partition_that_comes_and_goes(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    line = new_line(f"{MODULE}:hooks", {"file": str(notes)})
    try:
        _, gone = line.add(0, 1)
        fill(line, 1, [(0, (0, 1, 2))], 1)
        line.run(lambda: line.copied(gone))
        line.copier.holder.remove(gone)
        line.run(lambda: "release" in notes.read_text())
        assert sorted(notes.read_text().splitlines()) == ["assign 0 0", "assign 1 0", "release 1"]
        assert line.sent == [Released((gone,))]
    finally:
        line.close()


def test_the_release_hook_comes_after_the_last_commit(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    line = new_line(f"{MODULE}:hooks", {"file": str(notes)})
    try:
        partition, _ = line.add(0, 1)
        fill(line, 0, [(0, (0, 1, 2))], 1)
        line.run(lambda: line.copied(partition))
        line.ownership.hold.add(Commit)
        fill(line, 0, [(0, (0, 1, 2))], 1)
        line.run(lambda: bool(line.ownership.held_back))
        line.copier.holder.remove(partition)
        line.turns(20)
        assert sorted(notes.read_text().splitlines()) == ["assign 0 0", "assign 1 0"]
        line.ownership.let_pass()
        line.run(lambda: "release 0" in notes.read_text())
        assert line.ownership.stored[partition] == line.source.logs["t", 0].end
    finally:
        line.close()
