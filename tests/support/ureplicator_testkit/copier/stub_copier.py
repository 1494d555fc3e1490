"""A test double of the copier: it speaks the lifeline protocol and copies nothing.

Partitions become ONLINE once they are granted. Behaviour is chosen by the topic's name: `fails` fails
at once (temporarily), `broken` permanently, `slow` takes a second to be released, `dies` kills the
process, `raises` raises.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field

from ureplicator_common.model import OwnerEpoch, Partition, PartitionState
from ureplicator_worker.lifeline.client import open_lifeline
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierConfig,
    CopierReport,
    Failed,
    Message,
    PartitionReport,
    ProofRequest,
    ProofResponse,
    Released,
    Remove,
    Stop,
)

REPORT_EVERY_S = 0.1
SLOW_S = 1.0


def copy(config: CopierConfig) -> None:
    with open_lifeline(config) as peer:
        StubCopier(peer).run()


@dataclass
class StubCopier:
    peer: socket.socket
    requested: dict[Partition, OwnerEpoch] = field(default_factory=dict)
    online: dict[Partition, OwnerEpoch] = field(default_factory=dict)
    requests: int = 0
    stopped: bool = False

    def run(self) -> None:
        inbox = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.peer, selectors.EVENT_READ)
            while not self.stopped:
                if selector.select(REPORT_EVERY_S):
                    try:
                        data = self.peer.recv(65536)
                    except ConnectionResetError:
                        return
                    if not data:
                        return
                    *lines, inbox = (inbox + data).split(b"\n")
                    for line in lines:
                        self.receive(decode(line))
                self.report()

    def send(self, message: Message) -> None:
        try:
            self.peer.sendall(encode(message))
        except OSError:
            self.stopped = True

    def receive(self, message: Message) -> None:
        match message:
            case Add(partitions):
                self.requests += 1
                self.requested |= partitions
                self.send(ProofRequest(self.requests, partitions))
            case ProofResponse(_, granted, refused):
                for partition, grant in granted.items():
                    if self.requested.get(partition) == grant.owner_epoch:
                        self.begin(partition, self.requested.pop(partition))
                for partition, reason in refused.items():
                    if self.requested.pop(partition, None) is not None:
                        self.send(Failed(partition, f"refused: {reason}", temporary=True))
            case Remove(partitions):
                self.release(partitions)
            case Stop():
                self.release((*self.online, *self.requested))
                self.stopped = True

    def begin(self, partition: Partition, epoch: OwnerEpoch) -> None:
        if "dies" in partition.topic:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raises" in partition.topic:
            raise RuntimeError(f"cannot copy {partition}")
        if "fails" in partition.topic or "broken" in partition.topic:
            self.send(Failed(partition, "failed on purpose", temporary="fails" in partition.topic))
            return
        self.online[partition] = epoch

    def release(self, partitions: tuple[Partition, ...]) -> None:
        if any("slow" in partition.topic for partition in partitions):
            time.sleep(SLOW_S)
        for partition in partitions:
            self.online.pop(partition, None)
            self.requested.pop(partition, None)
        self.send(Released(partitions))

    def report(self) -> None:
        copying = PartitionReport(
            PartitionState.ONLINE, position=10, committed=10, records=10, lag=0
        )
        waiting = PartitionReport(PartitionState.OFFLINE, reason="waits for the driver")
        self.send(
            CopierReport(
                {**dict.fromkeys(self.requested, waiting), **dict.fromkeys(self.online, copying)},
                latency_ms=(5, 3, 2),
                latency_sum_ms=20,
            )
        )
