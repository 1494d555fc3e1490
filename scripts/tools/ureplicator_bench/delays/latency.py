"""Latency: from just before a record is produced until a consumer has it.

    producer -+-> source --> replicator --> target --> consumer       what users wait for
              |      \\-> consumer                                      floor at the source
              +-----------------> target, another topic --> consumer   floor at the target

The value contains the time of producing. A copy is produced and consumed at either end, so no replicator is
faster than both floors together; what they show is none of its doing. All consumers are processes, alike,
and long-poll with a broker's minimum, one byte.

The probe runs through three phases: beside a full topic that is copied, right after it, and quiet.
"""

from __future__ import annotations

import gc
import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ureplicator_bench.contenders import Contender
from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import cpu_s, others_cpu_s, quantile, share
from ureplicator_demo.progress import Ends
from ureplicator_testkit.records.topics import QUIET
from ureplicator_testkit.servers.processes import eventually

PER_S = 500
WARM_S = 8.0
DEADLINE_S = 300.0
SIZE = 200
BESIDE, AFTER, QUIET_PHASE = "beside copying", "right after copying", "quiet"
_STAMP = struct.Struct(">d")
_END = -1.0
"""Stamp of the last record of each partition."""
_GRACE_S = 10.0

Seen = Sequence[tuple[float, float]]
"""Time sent and latency in ms of each record."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Latency in milliseconds of the records of one phase."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Latency:
    """One phase: the copy, and the floors at the source and at the target."""

    phase: str
    sent: int
    received: int
    copy: Quantiles
    source: Quantiles
    target: Quantiles
    others_share: float


@dataclass(frozen=True, slots=True)
class Phase:
    """Part of the time, in wall-clock time, as the stamps are."""

    name: str
    from_s: float
    to_s: float


def measure(
    contender: Contender,
    servers: Servers,
    topic: str,
    profile: Profile,
    *,
    seconds: float,
    full_topic: str,
) -> list[Latency]:
    """`full_topic` is copied first, by the same replicator; its records are those of `profile`.

    `<topic>-plain` exists at the target, for the floor.
    """
    copied = Ends(servers.target.bootstrap, full_topic, profile.partitions)

    def phases(sender: Sender) -> Iterator[Phase]:
        return _phases(sender, copied, profile, seconds)

    return probed(contender, servers, [topic, full_topic], profile, phases=phases)


def probed(
    contender: Contender,
    servers: Servers,
    topics: Sequence[str],
    profile: Profile,
    *,
    phases: Callable[[Sender], Iterator[Phase]],
) -> list[Latency]:
    """Latency of the first of these topics while a contender copies all of them. `phases` sends."""
    source, target = servers.source.bootstrap, servers.target.bootstrap
    topic, plain = topics[0], f"{topics[0]}-plain"
    sender = Sender([(source, topic), (target, plain)], profile.partitions)
    began = time.monotonic()
    try:
        others_s = -_others_s(contender, servers)
        with (
            _consumer(source, topic, profile) as at_source,
            _consumer(target, plain, profile) as at_target,
            _consumer(target, topic, profile) as copied,
        ):
            contender.start(topics, profile)
            passed = list(phases(sender))
            sender.end()
            seen = [consumer() for consumer in (copied, at_source, at_target)]
        others_s += _others_s(contender, servers)
    finally:
        contender.stop()
    others_share = share(others_s, time.monotonic() - began)
    return [_latency(phase, sender.stamps, seen, others_share) for phase in passed]


def _phases(sender: Sender, copied: Ends, profile: Profile, seconds: float) -> Iterator[Phase]:
    """Send through all phases."""
    sender.run_until(lambda: copied.total() > 0, "copying begins")
    copying_s = time.time()
    sender.run_until(lambda: copied.total() >= profile.records, "the full topic is copied")
    copied_s = time.time()
    sender.run(seconds)
    yield Phase(BESIDE, copying_s, copied_s)
    yield Phase(AFTER, copied_s, copied_s + seconds)
    sender.run(WARM_S)
    quiet_s = time.time()
    sender.run(seconds)
    yield Phase(QUIET_PHASE, quiet_s, quiet_s + seconds)


def _latency(
    phase: Phase, stamps: Sequence[float], seen: Sequence[Seen], others_share: float
) -> Latency:
    """`seen`: of the copy, at the source, at the target."""
    sent = sum(phase.from_s <= stamp < phase.to_s for stamp in stamps)
    late = [_late_ms(phase, end) for end in seen]
    copied, source, target = map(quantiles, late)
    return Latency(phase.name, sent, len(late[0]), copied, source, target, others_share)


def _late_ms(phase: Phase, seen: Seen) -> list[float]:
    return sorted(ms for stamp, ms in seen if phase.from_s <= stamp < phase.to_s)


def _others_s(contender: Contender, servers: Servers) -> float:
    return others_cpu_s(cpu_s([*contender.processes(), *servers.brokers()]))


def quantiles(late_ms: Sequence[float]) -> Quantiles:
    """Quantiles of latencies in ascending order. Raises AssertionError if there are none."""
    if not late_ms:
        raise AssertionError("no record arrived")
    p50, p99, p999 = (quantile(late_ms, part) for part in (0.5, 0.99, 0.999))
    return Quantiles(p50, p99, p999, late_ms[-1])


class Sender:
    """Sends at an even pace to each topic; a late wake-up is compensated, so that the mean rate stays."""

    def __init__(self, topics: Sequence[tuple[str, str]], partitions: int) -> None:
        """`topics`: bootstrap servers and name of each."""
        settings: dict[str, Any] = {"linger.ms": 0, "acks": "1"}
        self._producers = [
            (Producer({"bootstrap.servers": bootstrap, **settings, **QUIET}), topic)
            for bootstrap, topic in topics
        ]
        self._partitions = partitions
        self.stamps: list[float] = []

    def run(self, seconds: float) -> None:
        """Send for so long."""
        began = time.monotonic()
        for number in range(int(seconds * PER_S)):
            self._send(len(self.stamps) % self._partitions)
            wait_s = began + (number + 1) / PER_S - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)

    def run_until(
        self, predicate: Callable[[], bool], what: str, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Send until it is true; it is polled in a thread, since it blocks."""
        done = threading.Event()

        def watch() -> None:
            eventually(predicate, deadline_s, what, poll_s=0.05)
            done.set()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        while watcher.is_alive():
            self.run(0.1)
        if not done.is_set():
            raise AssertionError(f"not in time: {what}")

    def end(self) -> None:
        """Send the last record of each partition."""
        for producer, topic in self._producers:
            for partition in range(self._partitions):
                producer.produce(topic, _value(_END), partition=partition)
            if producer.flush(30):
                raise AssertionError(f"{topic}: a broker took not every record")

    def _send(self, partition: int) -> None:
        self.stamps.append(time.time())
        for producer, topic in self._producers:
            producer.produce(topic, _value(time.time()), partition=partition)
            producer.poll(0)


def _value(stamp: float) -> bytes:
    return _STAMP.pack(stamp) + b"x" * (SIZE - _STAMP.size)


@contextmanager
def _consumer(bootstrap: str, topic: str, profile: Profile) -> Iterator[Callable[[], Seen]]:
    """A consumer process; the function waits for its end and returns what it saw."""
    command = [sys.executable, "-m", __name__, bootstrap, topic, str(profile.partitions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603

    def seen() -> Seen:
        output, _ = process.communicate(timeout=120)
        found: Seen = json.loads(output)
        return found

    try:
        yield seen
    finally:
        process.kill()
        process.wait()


def consume(bootstrap: str, topic: str, partitions: int) -> None:
    """Read until the last record of each partition, and print the others: time sent, latency in ms."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 1,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    seen: list[tuple[float, float]] = []
    ended = 0
    gc.disable()
    last = time.monotonic()
    while ended < partitions and (not seen or time.monotonic() - last < _GRACE_S):
        message = consumer.poll(0.1)
        now = time.time()
        if message is None or message.error():
            continue
        value = message.value()
        assert isinstance(value, bytes)
        (stamp,) = _STAMP.unpack_from(value)
        if stamp == _END:
            ended += 1
        else:
            seen.append((stamp, (now - stamp) * 1_000))
        last = time.monotonic()
    consumer.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], int(sys.argv[3]))
