"""Latency: from just before a record is produced until a consumer of the target has it.

The value contains the time of producing. The consumer is a process of its own, so that only the copy
lies between the two; it long-polls with a broker's minimum, one byte.
"""

from __future__ import annotations

import gc
import json
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
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
SIZE = 200
_STAMP = struct.Struct(">d")
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles in milliseconds over all records sent after the warm-up."""

    sent: int
    received: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    others_share: float


def measure(
    contender: Contender, servers: Servers, topic: str, profile: Profile, *, seconds: float
) -> Latency:
    partitions = profile.partitions
    target = servers.target.bootstrap
    try:
        contender.start(topic, profile)
        sender = _Sender(servers.source.bootstrap, topic, partitions)
        sender.run(1.0)
        ends = Ends(target, topic, partitions)
        eventually(lambda: ends.total() >= sender.sent, 120, f"{contender.name} copies", poll_s=0.2)
        others_s, began = _others_s(contender, servers), time.monotonic()
        total = sender.sent + int((WARM_S + seconds) * PER_S)
        consumer = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", __name__, target, topic, str(partitions), str(total)],
            stdout=subprocess.PIPE,
        )
        try:
            sender.run(WARM_S)
            counted_from = time.time()
            before = sender.sent
            sender.run(seconds)
            output, _ = consumer.communicate(timeout=60)
        finally:
            consumer.kill()
            consumer.wait()
        others_s = _others_s(contender, servers) - others_s
        others_share = share(others_s, time.monotonic() - began)
    finally:
        contender.stop()
    late = [ms for stamp, ms in json.loads(output) if stamp >= counted_from]
    return _quantiles(sorted(late), sent=sender.sent - before, others_share=others_share)


def _others_s(contender: Contender, servers: Servers) -> float:
    return others_cpu_s(cpu_s([*contender.processes(), *servers.brokers()]))


def _quantiles(late: Sequence[float], *, sent: int, others_share: float) -> Latency:
    if not late:
        raise AssertionError("no record arrived")

    p50, p99, p999 = (quantile(late, part) for part in (0.5, 0.99, 0.999))
    return Latency(sent, len(late), p50, p99, p999, late[-1], others_share)


class _Sender:
    """Sends at an even pace; a late wake-up is compensated, so that the mean rate stays."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"}
        self._producer = Producer({**settings, **QUIET})
        self._topic, self._partitions = topic, partitions
        self.sent = 0

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        for number in range(int(seconds * PER_S)):
            value = _STAMP.pack(time.time()) + b"x" * (SIZE - _STAMP.size)
            self._producer.produce(self._topic, value, partition=self.sent % self._partitions)
            self._producer.poll(0)
            self.sent += 1
            wait_s = began + (number + 1) / PER_S - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
        if self._producer.flush(30):
            raise AssertionError("the source took not every record")


def consume(bootstrap: str, topic: str, partitions: int, total: int) -> None:
    """Read `total` records and print [time sent, latency in ms] of each."""
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
    gc.disable()
    last = time.monotonic()
    while len(seen) < total and time.monotonic() - last < _GRACE_S:
        message = consumer.poll(0.1)
        now = time.time()
        if message is None or message.error():
            continue
        value = message.value()
        assert isinstance(value, bytes)
        (stamp,) = _STAMP.unpack_from(value)
        seen.append((stamp, (now - stamp) * 1_000))
        last = time.monotonic()
    consumer.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
