"""The handlers of a lane: which process gets which chunk, and what becomes of its results.

Partitions with equal settings of a handler share a process. It has up to TASKS_AHEAD chunks, so that it
never waits for the copier; they are of different partitions in turn. Results come in order, so whatever the
process hangs at, or dies of, is its oldest task: that partition fails, the other chunks wait for the
next process.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ureplicator_common.model import HandlerSettings, Transform
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.copier.handler_counters import HandlerCounters
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.net.connections import Connections
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.record.frames import Head
from ureplicator_worker.copier.record.partition import LanePartition, RecordPartition
from ureplicator_worker.copier.record.process import HandlerProcess
from ureplicator_worker.copier.record.window import Chunk, output_of

TASKS_AHEAD = 2
SQL_TASKS_AHEAD = 256
SQL_MEMORY_SHARE = 3
"""Part of the route's memory for a chunk. Of several partitions, or of one with a backlog, a round
takes what is there, and costs the same however many rows it has. So chunks are bounded by bytes: this
part of the route's memory."""
MIN_OUTPUT_BYTES = 64 << 10
"""Outputs that a partition may always have on their way to the target."""
RESTART_S = 0.5
LINGER_S = 90.0
"""A process of queries takes seconds to start. So it is kept for partitions that begin again: after a change
of the query at once, after a failure within a minute."""
CLOSE_S = 2.0
CLOSE_TICK_S = 0.01
StartProcess = Callable[[Transform, float], HandlerProcess]
NO_ID = str(uuid.UUID(int=0))

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Something for a process to do. Without a chunk: a hook."""

    kind: str
    raw: RecordPartition
    chunk: Chunk | None = None
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """Partitions that share a process: those of a handler, or of queries. `active`: those that may have
    something to handle. `assigned`: those that the process knows. `topics`: target topics whose partition
    counts it requested. `end_at_s`: end of the process, unless it has partitions then."""

    settings: Transform
    process: HandlerProcess | None = None
    restart_at_s: float = 0.0
    end_at_s: float = 0.0
    partitions: dict[RecordPartition, None] = field(default_factory=dict)
    unassigned: dict[RecordPartition, None] = field(default_factory=dict)
    assigned: set[RecordPartition] = field(default_factory=set)
    active: dict[RecordPartition, None] = field(default_factory=dict)
    tasks: deque[Task] = field(default_factory=deque)
    topics: set[str] = field(default_factory=set)


class PartitionFailing(Protocol):
    """Effect of a partition that cannot go on, `local` by a cause at this worker."""

    def __call__(self, part: RecordPartition, reason: str, *, local: bool) -> None: ...


class Handlers:
    """Sockets of the lane (`copier.lane.SocketGroup`). `topics_changed()`: `topics` has grown."""

    def __init__(
        self,
        *,
        target: Target,
        pool: BufferPool,
        failed: PartitionFailing,
        topics_changed: Callable[[], None],
        start: StartProcess,
        counters: HandlerCounters,
    ) -> None:
        self._target = target
        self._pool = pool
        self._failed = failed
        self._topics_changed = topics_changed
        self._start = start
        self._counters = counters
        self._groups: dict[Transform, Group] = {}
        self._ending: list[HandlerProcess] = []
        self._now_s = 0.0

    @property
    def open(self) -> Iterator[HandlerProcess]:
        groups = self._groups.values()
        return iter([group.process for group in groups if group.process is not None])

    @property
    def topics(self) -> set[str]:
        """Topics of the target to be covered, besides those in use."""
        return {topic for group in self._groups.values() for topic in group.topics}

    def add(self, raw: RecordPartition) -> None:
        group = self._groups.setdefault(raw.transform.process, Group(raw.transform.process))
        group.partitions[raw] = group.unassigned[raw] = None

    def activate(self, raw: LanePartition) -> None:
        """The partition may have something to handle."""
        if isinstance(raw, RecordPartition):
            self._groups[raw.transform.process].active[raw] = None

    def remove(self, raw: LanePartition) -> None:
        """Remove a partition, whose window is discarded already."""
        if not isinstance(raw, RecordPartition):
            return
        group = self._groups[raw.transform.process]
        for partitions in (group.partitions, group.unassigned, group.active):
            partitions.pop(raw, None)
        if group.process is not None and raw in group.assigned:
            group.assigned.discard(raw)
            self._give(group, Task("release", raw), {})
        if not group.partitions:
            lingers = not isinstance(group.settings, HandlerSettings)
            group.end_at_s = self._now_s + (LINGER_S if lingers else 0.0)
            self._end_idle(group)

    def _end_idle(self, group: Group) -> bool:
        """End a group without partitions whose time has come, or whose process is gone."""
        idle = not group.partitions and (group.process is None or self._now_s >= group.end_at_s)
        if idle:
            del self._groups[group.settings]
            if group.process is not None:
                group.process.end(self._now_s)
                self._ending.append(group.process)
        return idle

    def on_readable(self, process: HandlerProcess, now_s: float) -> None:
        group = self._groups.get(process.settings)
        if group is None or group.process is not process:
            return
        for head, payload in process.read(now_s):
            try:
                self._take(group, process, head, payload)
            except (LookupError, TypeError, ValueError) as error:
                logger.exception("%s: result %s", group.settings.name, list(head))
                process.error = (
                    f"{group.settings.lane}: its process sent garbage: {type(error).__name__}"
                )
        if process.error:
            self._lost(group, process)

    def on_writable(self, process: HandlerProcess, now_s: float) -> None:
        process.write()

    def work(self, now_s: float) -> None:
        """Start what is missing, give out chunks, notice what is late."""
        self._now_s = now_s
        for group in list(self._groups.values()):
            if self._end_idle(group):
                continue
            process = group.process or self._restart(group)
            if process is None:
                continue
            process.check(now_s, busy=bool(group.tasks))
            if process.error:
                self._lost(group, process)
                continue
            name_topics(process, self._target.connections)
            if process.ready:
                self._give_out(group)
        if self._ending:
            self._ending = [ending for ending in self._ending if not ending.ended(now_s)]

    def _restart(self, group: Group) -> HandlerProcess | None:
        wanted = [raw for raw in group.partitions if not raw.fetch.finished]
        if not wanted or self._now_s < group.restart_at_s:
            return None
        try:
            group.process = self._start(group.settings, self._now_s)
        except OSError as error:
            for raw in group.partitions:
                reason = f"{group.settings.lane}: no process can be started: {error}"
                self._failed(raw, reason, local=True)
        self._counters.started({raw.partition.topic for raw in wanted})
        group.restart_at_s = self._now_s + RESTART_S
        group.unassigned = dict.fromkeys(wanted)
        group.assigned.clear()
        return group.process

    def _give_out(self, group: Group) -> None:
        while group.unassigned:
            raw = next(iter(group.unassigned))
            del group.unassigned[raw]
            group.assigned.add(raw)
            self._give(group, Task("assign", raw), raw.assignment)
        chosen = choose(group, self._pool) if group.active else []
        for number, task in enumerate(chosen, start=1):
            self._give_chunk(group, task, more=number < len(chosen))

    def _give_chunk(self, group: Group, task: Task, *, more: bool) -> None:
        """`more`: the next chunk follows at once, and may be handled together with this one."""
        chunk, raw = task.chunk, task.raw
        assert chunk is not None
        fields = {
            "target": raw.send.topic_partition[0],
            "batches": [(batch.size_bytes, batch.position) for batch in chunk.batches],
            "next": chunk.next_offset,
            "more": more,
        }
        self._give(group, task, fields, [batch.lease.view for batch in chunk.batches])

    def _give(
        self,
        group: Group,
        task: Task,
        more: Mapping[str, Any],
        views: list[memoryview] | None = None,
    ) -> None:
        assert group.process is not None
        if not group.tasks:
            group.process.begin(self._now_s)
        group.tasks.append(task)
        partition = task.raw.partition
        head = {"do": task.kind, "topic": partition.topic, "partition": partition.number, **more}
        group.process.send(head, views or ())

    def _take(self, group: Group, process: HandlerProcess, head: Head, payload: memoryview) -> None:
        if "handled" in head:
            self._handled(group.tasks[0], head, payload)
        elif "done" in head:
            task = group.tasks.popleft()
            if task.chunk is not None:
                self._counters.done(task.raw.partition.topic, busy_ms=head["busyMs"])
                task.raw.window.done(task.chunk)
        elif "failed" in head:
            self._task_failed(group.tasks.popleft(), str(head["failed"]))
        elif "which" in head:
            process.awaited.add(head["which"])
            group.topics.add(head["which"])
            self._topics_changed()
        elif "broken" in head:
            process.error = str(head["broken"])
        else:
            process.ready = bool(head["ready"])

    def _handled(self, task: Task, head: Head, payload: memoryview) -> None:
        if task.chunk is None:
            raise ValueError("a result without a chunk")
        part = task.raw.window.handled(task.chunk, int(head["handled"]))
        if part is None:
            return
        self._counters.handled(task.raw.partition.topic, **head["counts"])
        at = 0
        for topic, number, size, records, runs, max_timestamp_ms in head["batches"]:
            lease = self._pool.adopt(_part(payload, at, size))
            at += size
            offsets = SourceOffsets(tuple((index, offset) for index, offset in runs))
            batch = Batch(
                lease.view,
                lease=lease,
                first_offset=offsets.at(0),
                next_offset=part.next_offset,
                leader_epoch=part.leader_epoch,
                records=records,
                max_timestamp_ms=max_timestamp_ms,
                offsets=offsets,
            )
            send = self._send_to(task.raw, (topic, number))
            send.window.push(output_of(batch, part))
            self._target.activate(send)
        task.raw.window.advance()

    def _send_to(self, raw: RecordPartition, target: TopicPartition) -> SendSide:
        known = raw.outputs.get(target)
        if known is not None:
            return known
        view = self._target.connections.view
        topic_id = view.topic_ids.get(target[0], NO_ID) if view is not None else NO_ID
        send = raw.send_to(target, topic_id)
        self._topics_changed()
        self._target.need_producer(send)
        return send

    def _task_failed(self, task: Task, reason: str) -> None:
        if task.kind == "release":
            logger.error("%s: on_release: %s", task.raw.partition, reason)
            return
        self._counters.failed(task.raw.partition.topic)
        self._failed(task.raw, reason, local=False)

    def _lost(self, group: Group, process: HandlerProcess) -> None:
        """The process is dead, or as good as: its oldest task is at fault, or the handler itself."""
        process.kill()
        group.process = None
        tasks = list(group.tasks)
        group.tasks.clear()
        for task in reversed(tasks):
            if task.chunk is not None:
                task.raw.window.give_back(task.chunk)
                group.active[task.raw] = None
        group.active = {raw: None for raw in group.active if raw in group.partitions}
        if not process.ready:
            for raw in group.partitions:
                self._failed(raw, process.error, local=True)
        elif tasks:
            self._task_failed(tasks[0], process.error)
        else:
            logger.warning("%s: %s", group.settings.name, process.error)

    def close(self) -> None:
        """Give the processes a moment for their hooks."""
        ending = [*self.open, *self._ending]
        for process in ending:
            process.end(self._now_s)
        by_s = time.monotonic() + CLOSE_S
        while ending and time.monotonic() < by_s:
            ending = [process for process in ending if not process.ended(self._now_s)]
            time.sleep(CLOSE_TICK_S if ending else 0)
        for process in ending:
            process.kill()


def _part(payload: memoryview, at: int, size: int) -> bytearray:
    """Bytes of a result to keep: the payload itself, if it is one batch."""
    whole = payload.obj
    if size == len(payload) and isinstance(whole, bytearray):
        return whole
    return bytearray(payload[at : at + size])


def name_topics(process: HandlerProcess, connections: Connections) -> None:
    """Partition counts of the target topics that the process requests, once they are known."""
    for topic in list(process.awaited):
        if topic not in connections.covered or connections.view is None:
            continue
        count = sum(topic == known for known, _ in connections.view.leaders)
        process.awaited.discard(topic)
        process.send({"partitions": topic, "count": count})
        if not count:
            connections.refresh()


def choose(group: Group, pool: BufferPool) -> list[Task]:
    """The next chunks for the process, of its partitions in turn; none if it has enough."""
    count = len(group.partitions) or 1
    share = max(MIN_OUTPUT_BYTES, pool.limit_bytes // 4 // count)
    room, room_bytes = room_of(group, pool)
    chosen: list[Task] = []
    while room_bytes > 0:
        before = len(chosen)
        for raw in list(group.active):
            if len(chosen) >= room or room_bytes <= 0:
                return chosen
            if not raw.window.waits:
                del group.active[raw]
            elif not raw.send.suspended and raw.window.output_bytes < share:
                group.active[raw] = group.active.pop(raw)
                chunk = raw.window.take()
                chosen.append(Task("handle", raw, chunk, chunk.size_bytes))
                room_bytes -= chunk.size_bytes
        if len(chosen) == before:
            break
    return chosen


def room_of(group: Group, pool: BufferPool) -> tuple[int, int]:
    """Tasks, and their bytes, that the process may have besides those it has."""
    if isinstance(group.settings, HandlerSettings):
        return TASKS_AHEAD - len(group.tasks), pool.limit_bytes
    under_way = sum(task.size_bytes for task in group.tasks)
    limit_bytes = pool.limit_bytes // SQL_MEMORY_SHARE
    return SQL_TASKS_AHEAD - len(group.tasks), limit_bytes - under_way
