"""Counters of handlers, through the real lane and the real work on chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from ureplicator_common.model import HandlerSettings, RouteSettings
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import ROUTE, Line
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.lifeline.messages import HandlerReport

RECORDS = 200
"""More than between two readings of the clock."""


@contextmanager
def line_of(handler: str, *, dead_letter_topic: str = "", **args: object) -> Iterator[Line]:
    """One partition with RECORDS values 0, 1, ..., each once."""
    source, target = MemoryKafka("A", {"t": 1}), MemoryKafka("B", {"t": 1, "u": 1, "dead": 1})
    config = HandlerSettings("t", handler, json.dumps(args), dead_letter_topic=dead_letter_topic)
    line = Line(source, target, settings=RouteSettings(handlers=(config,)))
    rows = [(1, b"k", b"%d" % number, ()) for number in range(RECORDS)]
    source.logs["t", 0].put(batches.batch(rows))
    try:
        line.add(0)
        yield line
    finally:
        line.close()


def counted(line: Line) -> HandlerReport:
    reports = line.lane.handled.reports(ROUTE)
    return reports.get(f"{ROUTE}/t", HandlerReport())._replace(busy_ms=0)


def run(line: Line) -> HandlerReport:
    line.run(lambda: counted(line).chunks > 0 or bool(line.sent))
    return counted(line)


def test_records_as_they_are() -> None:
    with line_of("ureplicator_worker.handlers:identity") as line:
        assert run(line) == HandlerReport(RECORDS, RECORDS, chunks=1, starts=1)


def test_records_that_are_dropped_and_multiplied() -> None:
    with line_of("ureplicator_worker.handlers.filters:by_key", pattern="no") as line:
        assert run(line) == HandlerReport(RECORDS, dropped=RECORDS, chunks=1, starts=1)
    with line_of(f"{MODULE}:three", others=["u", "u"]) as line:
        assert run(line) == HandlerReport(RECORDS, 3 * RECORDS, chunks=1, starts=1)


def test_dead_letters_are_outputs_and_errors() -> None:
    handler = {"what": "raise", "at": ".*5"}
    with line_of(f"{MODULE}:fails", dead_letter_topic="dead", **handler) as line:
        dead = RECORDS // 10
        wanted = HandlerReport(RECORDS, RECORDS, dead_letters=dead, errors=dead, chunks=1, starts=1)
        assert run(line) == wanted


def test_a_partition_that_stops_is_an_error() -> None:
    with line_of(f"{MODULE}:fails", what="raise", at="150") as line:
        line.run(lambda: bool(line.sent))
        assert counted(line) == HandlerReport(150, 150, errors=1, starts=1)


def test_processes_that_are_started_again() -> None:
    with line_of("ureplicator_worker.handlers:identity") as line:
        run(line)
        (process,) = processes(line.lane)
        process.lose()
        line.run(lambda: counted(line).starts == 2, skip_s=0.1)
