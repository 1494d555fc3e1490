"""The copier's link to its driver: what it is sent, and its end, which is noticed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_common.model import Partition, PartitionState, Route
from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.copier.loop.driver_link import DriverLink
from ureplicator_worker.copier.reporting import FULL_EVERY, ONLINE_EVERY, SEGMENTS_EACH
from ureplicator_worker.lifeline.client import LifelineClient, LifelineClosed
from ureplicator_worker.lifeline.measures import Measures, Segment
from ureplicator_worker.lifeline.messages import (
    CopierReport,
    Failed,
    Message,
    PartitionReport,
    Released,
    Stop,
)

ONE = Route("a", "b")


class MemoryLifeline(LifelineClient):
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.incoming: list[Message] = []
        self.gone = self.closed = self.full = False

    @property
    def wants_write(self) -> bool:
        return self.full

    def send(self, message: Message) -> None:
        self.on_writable()
        self.sent.append(message)

    def on_writable(self) -> None:
        if self.gone:
            raise LifelineClosed("gone")

    def on_readable(self) -> Iterator[Message]:
        yield from self.incoming
        self.on_writable()

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@pytest.fixture
def lifeline() -> MemoryLifeline:
    return MemoryLifeline()


def test_messages_reach_the_copier_before_the_end(lifeline: MemoryLifeline) -> None:
    received: list[Message] = []
    link = DriverLink(lifeline, received=received.append)
    lifeline.incoming, lifeline.gone = [Stop()], True
    link.on_readable(lifeline, 0.0)
    assert received == [Stop()]
    assert link.closed
    assert link.open == ()


@pytest.mark.parametrize("act", ["send", "on_writable", "close"])
def test_after_the_end_nothing_is_sent(lifeline: MemoryLifeline, act: str) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    assert link.ready
    lifeline.gone = True
    match act:
        case "send":
            link.send(Stop())
        case "on_writable":
            link.on_writable(lifeline, 0.0)
        case _:
            link.close()
    assert (link.closed, link.ready, lifeline.closed) == (True, False, True)
    link.send(Stop())
    link.close()
    assert lifeline.sent == []


def test_reports_wait_while_the_driver_does_not_read(lifeline: MemoryLifeline) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    lifeline.full = True
    assert not link.ready


P0, P1 = Partition(ONE, "t", 0), Partition(ONE, "t", 1)


class Reporting:
    """A link, and the partitions whose state it reports."""

    def __init__(self) -> None:
        self.lifeline = MemoryLifeline()
        self.link = DriverLink(self.lifeline, received=lambda _: None)
        self.now: dict[Partition, PartitionReport] = {}

    def online(self, partition: Partition, position: int = 5) -> None:
        self.now[partition] = PartitionReport(PartitionState.ONLINE, position=position)

    def report(self, times: int = 1) -> dict[Partition, PartitionReport]:
        """Partitions in each of so many reports to the driver."""
        self.lifeline.sent.clear()
        for _ in range(times):
            due = {
                part: report for part, report in self.now.items() if self.link.reports.is_due(part)
            }
            self.link.report(due, LatencyHistogram(), {}, {}, {}, Measures())
        sent = [report for report in self.lifeline.sent if isinstance(report, CopierReport)]
        assert len(sent) == times, "each report is sent, if only to show that the copier lives"
        return {part: row for report in sent for part, row in report.partitions.items()}


def test_a_report_holds_what_has_changed() -> None:
    reporting = Reporting()
    reporting.online(P0)
    reporting.online(P1)
    assert reporting.report() == reporting.now
    assert reporting.report(2 * ONLINE_EVERY) == {}
    reporting.online(P1, 6)
    assert reporting.report(ONLINE_EVERY) == {P1: reporting.now[P1]}


@pytest.mark.parametrize("state", [PartitionState.OFFLINE, PartitionState.ERROR])
def test_a_partition_that_is_not_online_is_compared_at_each_report(state: PartitionState) -> None:
    reporting = Reporting()
    for partition in (P0, P1):
        reporting.now[partition] = PartitionReport(state, "why")
        assert reporting.report() == {partition: reporting.now[partition]}
    for partition in (P0, P1):
        reporting.online(partition)
        assert reporting.report() == {partition: reporting.now[partition]}


@pytest.mark.parametrize("end", [Released((P0,)), Failed(P0, "why", True)])
def test_a_partition_that_comes_back_is_reported_although_it_is_as_before(end: Message) -> None:
    reporting = Reporting()
    reporting.online(P0)
    reporting.online(P1)
    reporting.report()
    reporting.link.send(end)
    assert reporting.report() == {P0: reporting.now[P0]}


def test_everything_is_reported_again_after_a_while() -> None:
    reporting = Reporting()
    reporting.online(P0)
    reporting.report()
    assert reporting.report(FULL_EVERY) == reporting.now


def segments_sent(
    link: DriverLink, lifeline: MemoryLifeline, held: dict[Partition, Segment]
) -> int:
    """Partitions whose segments the next report holds."""
    due = {part: (held[part],) for part in link.segments.due(lambda: held) if part in held}
    link.report({}, LatencyHistogram(), due, {}, {}, Measures())
    (report,) = lifeline.sent
    lifeline.sent.clear()
    assert isinstance(report, CopierReport)
    return len(report.segments)


def test_segments_are_reported_in_turn_when_they_have_changed(lifeline: MemoryLifeline) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    held = {Partition(ONE, "t", n): Segment(0, 1, 5) for n in range(SEGMENTS_EACH + 1)}
    counts = [segments_sent(link, lifeline, held) for _ in range(4)]
    assert counts == [SEGMENTS_EACH, 1, 0, 0]
    held[P0] = Segment(0, 2, 5)
    assert [segments_sent(link, lifeline, held) for _ in range(2)] == [1, 0]
    link.send(Released((P1,)))
    lifeline.sent.clear()
    assert [segments_sent(link, lifeline, held) for _ in range(2)] == [1, 0]


def test_a_partition_that_is_gone_when_its_turn_comes_is_left_out(lifeline: MemoryLifeline) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    held = {Partition(ONE, "t", n): Segment(0, 1, 5) for n in range(SEGMENTS_EACH + 2)}
    segments_sent(link, lifeline, held)
    del held[Partition(ONE, "t", SEGMENTS_EACH)]
    assert segments_sent(link, lifeline, held) == 1
