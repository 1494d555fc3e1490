"""Cost of partitions that are held and have nothing to copy: of the driver, and of each slot.

Both run without Spark, ZooKeeper and brokers, and without waiting: a second of virtual time is as many
ticks, reports and fetch responses as a real one has. What counts is the processor time of the product's
own code for it.

    driver  the state machine and its loop, the lifeline's decoding, telemetry, the nodes' encoding
    slot    one copier between two brokers in memory: its loop, fetch requests, commits and reports
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ureplicator_bench.figures import Figure
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    SessionId,
    WorkerId,
)
from ureplicator_common.znode_contents import AssignmentEntry, LiveWorker, WorkerUsage
from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.copier.line import ROUTE, Line
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.reporting import ReportDelta
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.instructions import EngineInstruction
from ureplicator_worker.core.state import initial
from ureplicator_worker.engines.event_loop import TICK_S, EventLoop
from ureplicator_worker.engines.event_queue import EventQueue
from ureplicator_worker.engines.performer import Performer
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.messages import Add, CopierId, CopierReport, PartitionReport

SLOTS = 10
DRIVER_LIMIT = 0.1
SLOT_LIMIT = 0.05
SECONDS = 20
PER_TOPIC = 100
REPORTS_PER_S = 5
FETCHES_PER_S = 10
TURNS_PER_FETCH = 2
ONLINE = PartitionReport(PartitionState.ONLINE, position=5, committed=5, lag=0)


def figures(partitions: int, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """Figures for a worker of ten slots that holds `partitions`."""
    progress(f"a driver with {partitions:,} idle partitions")
    driver = Driver(partitions)
    yield Figure(f"driver, {partitions:,} partitions become ONLINE", driver.start(), "CPU-s")
    cost = driver.run(SECONDS) / SECONDS
    yield Figure(f"driver, {partitions:,} idle partitions", cost, "CPU-s/s", DRIVER_LIMIT)
    each = partitions // SLOTS
    progress(f"a slot with {each:,} idle partitions")
    cost = slot_cost(each)
    yield Figure(f"slot, {each:,} idle partitions", cost, "CPU-s/s", SLOT_LIMIT)


class _Performer(Performer):
    """Performer of instructions, of which only Publish has a cost here."""

    def __init__(self, publisher: NodePublisher) -> None:
        self.done: list[EngineInstruction] = []
        self._publisher = publisher

    def perform(self, instruction: EngineInstruction) -> None:
        self.done.append(instruction)
        if isinstance(instruction, instructions.Publish):
            self._publisher.publish(instruction.current)


class Driver:
    """The loop of a worker, and reports as its copiers send them."""

    def __init__(self, partitions: int) -> None:
        self.clock = ManualClock()
        self.partitions = tuple(
            Partition(ROUTE, f"topic-{number // PER_TOPIC:04d}", number % PER_TOPIC)
            for number in range(partitions)
        )
        self._publisher = _publisher(self.clock)
        self._performer = _Performer(self._publisher)
        self.loop = EventLoop(
            state=initial(slots=SLOTS, silence_s=60.0, now_s=self.clock.monotonic_s()),
            events=EventQueue(),
            performer=self._performer,
            publisher=self._publisher,
            telemetry=Telemetry(),
            usage=lambda: WorkerUsage(0),
            clock=self.clock,
        )
        self.slots: dict[int, list[Partition]] = {}
        self._reports = {slot: ReportDelta() for slot in range(SLOTS)}
        self._spent_s = 0.0

    def start(self) -> float:
        """Assign everything and have it ONLINE; processor seconds of the loop."""
        with self._timed():
            self._begin()
        self._report()
        with self._timed():
            self._publisher.write_pending()
        assert all(held.phase.value == "ONLINE" for held in self.loop.state.held.values())
        return self._taken()

    def _begin(self) -> None:
        now_s = self.clock.monotonic_s()
        step = self.loop.step
        step(events.Tick(now_s))
        step(events.SessionRestored(SessionId(1)))
        for slot in range(SLOTS):
            step(events.CopierConnected(CopierId(slot, 1)))
        entries = dict.fromkeys(self.partitions, AssignmentEntry(OwnerEpoch(1)))
        step(events.AssignmentChanged(entries, 10))
        step(events.Fenced(ROUTE))
        for instruction in self._performer.done:
            match instruction:
                case instructions.ToCopier(copier, Add(partitions)):
                    self.slots[copier.slot] = list(partitions)

    def run(self, seconds: float) -> float:
        """Processor seconds of the loop for so long."""
        ticks_per_report = round(1 / TICK_S / REPORTS_PER_S)
        for tick in range(round(seconds / TICK_S)):
            self.clock.advance(TICK_S)
            with self._timed():
                self.loop.tick(self.clock.monotonic_s())
            if tick % ticks_per_report == 0:
                self._report()
            with self._timed():
                self._publisher.write_pending()
        return self._taken()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.process_time()
        yield
        self._spent_s += time.process_time() - began_s

    def _taken(self) -> float:
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _report(self) -> None:
        for slot, partitions in self.slots.items():
            reports = self._reports[slot]
            due = dict.fromkeys(filter(reports.is_due, partitions), ONLINE)
            line = encode(CopierReport(reports.changed(due)))
            with self._timed():
                message = decode(line)
                assert isinstance(message, CopierReport)
                self.loop.step(events.FromCopier(CopierId(slot, 1), message))


def _publisher(clock: ManualClock) -> NodePublisher:
    store = MemoryCoordination(MemoryStore())
    paths = Paths("bench")
    for path in paths.skeleton:
        store.ensure(path)
    publisher = NodePublisher(
        coordination=store,
        paths=paths,
        worker=WorkerId("w"),
        session_timeout_s=6.0,
        clock=clock,
        on_registered=lambda: None,
        on_taken=lambda why: None,
    )
    publisher.announce(LiveWorker(SLOTS))
    publisher.write_pending()
    return publisher


def slot_cost(partitions: int) -> float:
    """Processor seconds of one idle copier for each second."""
    topics = {f"topic-{number:04d}": PER_TOPIC for number in range(partitions // PER_TOPIC)}
    line = Line(MemoryKafka("A", topics), MemoryKafka("B", topics), commit_interval_s=1.0)
    for topic in topics:
        line.add(*range(PER_TOPIC), topic=topic)
    line.run(lambda: _all_online(line, partitions))
    line.turns(100)
    cost = _idle(line, turns=SECONDS * FETCHES_PER_S)
    line.close()
    return cost / SECONDS


def _all_online(line: Line, partitions: int) -> bool:
    shown = line.copier.report()
    return len(shown) == partitions and all(
        report.state is PartitionState.ONLINE for report in shown.values()
    )


def _idle(line: Line, *, turns: int) -> float:
    """Every second turn has the responses of all brokers, every fourth one a report."""
    spent_s, reports = 0.0, ReportDelta()
    for turn in range(turns):
        line.source.pump()
        line.target.pump()
        began_s = time.process_time()
        for _ in range(TURNS_PER_FETCH):
            line.work(skip_s=1 / FETCHES_PER_S / TURNS_PER_FETCH)
        if turn % (FETCHES_PER_S // REPORTS_PER_S) == 0:
            encode(CopierReport(reports.changed(line.copier.report(reports.is_due))))
        spent_s += time.process_time() - began_s
    return spent_s
