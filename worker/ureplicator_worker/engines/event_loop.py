"""Event loop of a worker: one thread takes events from a queue, steps, and performs instructions.

Anything that takes time happens in the engines, whose results come back as events.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

from ureplicator_common.clock import Clock
from ureplicator_common.model import owned
from ureplicator_common.znode_contents import WorkerUsage
from ureplicator_worker.core.events import Event, FromCopier, Tick
from ureplicator_worker.core.instructions import Exit
from ureplicator_worker.core.partition_phases import PartitionPhase
from ureplicator_worker.core.state import WorkerState
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.engines.event_queue import EventQueue
from ureplicator_worker.engines.performer import Performer
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.messages import CopierReport

logger = logging.getLogger(__name__)

TICK_S = 0.1
PUBLISH_LOADS_EVERY_S = 10.0
PUBLISH_USAGE_EVERY_S = 60.0


class EventLoop:
    """Any thread may read `state` and `stepped_s`; only the loop's thread writes them."""

    def __init__(
        self,
        *,
        state: WorkerState,
        events: EventQueue,
        performer: Performer,
        publisher: NodePublisher,
        telemetry: Telemetry,
        usage: Callable[[], WorkerUsage],
        clock: Clock,
    ) -> None:
        self.state = state
        self.stepped_s = clock.monotonic_s()
        self.exit: Exit | None = None
        self._events = events
        self._performer = performer
        self._publisher = publisher
        self._telemetry = telemetry
        self._clock = clock
        self._usage = usage
        self._loads_s = self.stepped_s
        self._usage_s = float("-inf")

    def run(self) -> Exit:
        """Step until Exit. Raises InvalidTransition."""
        ticked_s = 0.0
        while self.exit is None:
            now_s = self._clock.monotonic_s()
            if now_s - ticked_s >= TICK_S:
                ticked_s = now_s
                self.tick(now_s)
            try:
                event = self._events.get(max(0.0, ticked_s + TICK_S - now_s))
            except queue.Empty:
                continue
            self.step(event)
        return self.exit

    def tick(self, now_s: float) -> None:
        """Handle the passing of time, and publish loads and usage when they are due."""
        self.step(Tick(now_s))
        if self._publisher.registered:
            self._publish_measures(now_s)

    def _publish_measures(self, now_s: float) -> None:
        """The usage at once, too: what a worker copies counts from where a controller first sees it."""
        if now_s - self._loads_s >= PUBLISH_LOADS_EVERY_S:
            self._loads_s = now_s
            self._publisher.publish_measures(self._telemetry.loads(self.state.held, now_s))
        if now_s - self._usage_s >= PUBLISH_USAGE_EVERY_S:
            self._usage_s = now_s
            self._publisher.publish_measures(usage=self._usage())

    def step(self, event: Event) -> None:
        """Handle one event and perform what follows."""
        before = self.state
        self.state, instructions = step(before, event)
        self.stepped_s = self._clock.monotonic_s()
        if isinstance(event, FromCopier) and isinstance(event.notice, CopierReport):
            self._telemetry.count(event.copier, event.notice, self.state.held)
        self._telemetry.drop(p for p in self.state.to_visit if p not in self.state.held)
        log_changes(before, self.state)
        for instruction in instructions:
            if isinstance(instruction, Exit):
                self.exit = instruction
            else:
                self._performer.perform(instruction)


def log_changes(before: WorkerState, after: WorkerState) -> None:
    """One line for each partition whose phase changed."""
    for partition in after.to_visit:
        old, held = before.held.get(partition), after.held.get(partition)
        if held is None:
            if old is not None:
                logger.info("%s: released", owned(partition, old.owner_epoch))
        elif old is None or old.phase is not held.phase:
            level = logging.WARNING if held.phase is PartitionPhase.ERROR else logging.INFO
            name = owned(partition, held.owner_epoch)
            logger.log(level, "%s: %s %s", name, held.phase, held.reason)
