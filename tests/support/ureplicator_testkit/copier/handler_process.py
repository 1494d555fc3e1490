"""The process of a handler in memory: the same work on chunks, one piece each time the copier reads.

It requests the partition counts of all topics of the target before it begins, since it cannot wait later.
`lose` ends it, `stopped` has it do nothing. Its handlers are made as the process makes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ureplicator_common.model import HandlerSettings, Transform
from ureplicator_testkit.copier.memory_sql import MemorySql
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.record.channel import Channel, CopierGone
from ureplicator_worker.copier.record.frames import Frame, FrameReader, Head, encode
from ureplicator_worker.copier.record.handler_calls import outputs_of
from ureplicator_worker.copier.record.host import Host
from ureplicator_worker.copier.record.process import HandlerProcess
from ureplicator_worker.copier.record.time_limit import TimeLimit
from ureplicator_worker.sql.host import SqlHost


class NoLimit(TimeLimit):
    """Signals belong to the test."""

    def begin(self) -> None:
        self.slow = True

    def end(self) -> None:
        self.slow = False


class MemoryChannel(Channel):
    """A channel that keeps what is sent until it is read, one frame at a time."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self.inbox: deque[Frame] = deque()
        self.outbox: deque[bytes] = deque()

    def receive(self) -> Frame:
        if not self.inbox:
            raise CopierGone
        return self.inbox.popleft()

    @property
    def readable(self) -> bool:
        return bool(self.inbox)

    def send(self, head: Head, payload: Iterable[bytes | bytearray] = ()) -> None:
        if "which" in head:
            topic = head["which"]
            count = sum(topic == known for known, _ in self._kafka.logs)
            self.inbox.appendleft(({"partitions": topic, "count": count}, memoryview(b"")))
            return
        self.outbox.append(b"".join(bytes(piece) for piece in encode(head, tuple(payload))))


class MemoryHandlerProcess(HandlerProcess):
    def __init__(self, settings: Transform, now_s: float, *, target: MemoryKafka) -> None:
        self.settings = settings
        self.ready = False
        self.error = ""
        self.awaited: set[str] = set()
        self.stopped = False
        self._now_s = now_s
        self._channel = MemoryChannel(target)
        self._reader = FrameReader()
        self._host = self._make_host()
        self._took_config = False
        self._unknown = {topic for topic, _ in target.logs}
        for topic in self._unknown:
            self._channel.outbox.append(b"".join(encode({"which": topic})))
        self.send(self.config())

    def _make_host(self) -> Host | SqlHost:
        if not isinstance(self.settings, HandlerSettings):
            return SqlHost(self._channel, start=lambda config: MemorySql())
        return Host(
            self._channel,
            limit_memory=lambda size_bytes: None,
            limit=NoLimit(1.0, outputs=outputs_of),
        )

    @classmethod
    def of(cls, target: MemoryKafka) -> Callable[[Transform, float], HandlerProcess]:
        return lambda settings, now_s: cls(settings, now_s, target=target)

    @property
    def wants_write(self) -> bool:
        return False

    def send(self, head: Head, payload: Sequence[memoryview] = ()) -> None:
        if "partitions" in head:
            self._unknown.discard(head["partitions"])
            return
        data = b"".join(bytes(view) for view in payload)
        self._channel.inbox.append((head, memoryview(data)))

    def read(self, now_s: float) -> Iterator[Frame]:
        if self.stopped or self.error:
            return iter(())
        if not self._channel.outbox and self._channel.inbox and not self._unknown:
            self._work()
        if not self._channel.outbox:
            return iter(())
        return self._reader.feed(self._channel.outbox.popleft())

    def _work(self) -> None:
        if self._took_config:
            self._host.step()
        else:
            self._took_config = True
            self._host.begin()

    def lose(self) -> None:
        """Have it be dead from now on."""
        self.error = "handler: its process ended (lost by the test)"

    def check(self, now_s: float, *, busy: bool) -> None:
        """It is never late."""

    def begin(self, now_s: float) -> None:
        """It is never late."""

    def end(self, now_s: float) -> None:
        self.stopped = True

    def ended(self, now_s: float) -> bool:
        return True

    def kill(self) -> None:
        self.stopped = True


def processes(lane: Any) -> list[MemoryHandlerProcess]:
    """Processes that run for a lane."""
    return [
        process for process in lane.sockets()[-1].open if isinstance(process, MemoryHandlerProcess)
    ]
