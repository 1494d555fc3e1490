"""A driver for tests of the copier alone: the other end of the lifeline, without Spark or ZooKeeper.

It runs a copier in a process of its own and grants every ProofRequest (`grant`), refuses it (`refuse`),
or sends no response (`silent`), as the test wants: so a test plays the fleet and checks what the copier
really does.
"""

import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ureplicator_common.model import Gap, OwnerEpoch, Partition, PartitionState, Route
from ureplicator_testkit.records.topics import offsets
from ureplicator_testkit.servers.processes import Process, eventually
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.handshake import Admissions
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import (
    Add,
    ChallengeResponse,
    CopierConfig,
    CopierId,
    CopierReport,
    Failed,
    GapPassed,
    Grant,
    Hello,
    Message,
    PartitionReport,
    ProofRequest,
    ProofResponse,
    Released,
    Remove,
    Stop,
    StopRequest,
)

ROUTE = Route("source", "target")
BUFFER_BYTES = 64 << 20
SILENCE_S = 60.0

TESTKIT = Path(__file__).parents[2]
"""Folder from which handlers of tests are imported."""
SOURCES = [path for path in (os.environ.get("PYTHONPATH"),) if path]
"""Those that the tests run with."""

_RUN = (
    "import pickle, sys; from ureplicator_worker.copier import at_least_once, task;"
    "from ureplicator_worker.copier.raw import gap_filling;"
    "at_least_once.RENEW_S, gap_filling.STORED_S = map(float, sys.argv[2:]);"
    "task.copy(pickle.load(open(sys.argv[1], 'rb')))"
)


def partitions_of(topic: str, count: int, *, epoch: int = 1) -> dict[Partition, OwnerEpoch]:
    return {Partition(ROUTE, topic, number): OwnerEpoch(epoch) for number in range(count)}


class StubDriver:
    """`mode` decides the response to a request for a proof; `grant` makes the Grant of a partition.

    `renew_s`: how old the copier lets a position become, where a test cannot wait for half a day; `stored_s`:
    for how long it waits for brokers to store where a log begins.
    """

    def __init__(
        self,
        partitions: Mapping[Partition, OwnerEpoch],
        *,
        source: str,
        target: str,
        fleet: str,
        folder: Path,
        worker: str = "w1",
        slot: int = 0,
        commit_interval_s: float = 0.3,
        renew_s: float = RENEW_S,
        stored_s: float = 0.0,
        grant: Callable[[Partition, OwnerEpoch], Grant] | None = None,
        properties: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`properties`: of `source` and `target`, besides their addresses or instead of them."""
        more = properties or {}
        self.mode = "grant"
        self._source = source
        self._partitions = tuple(partitions)
        self.grant = grant or (lambda partition, epoch: Grant(epoch, partition.topic))
        self.proof_requests: list[ProofRequest] = []
        self.released: set[Partition] = set()
        self.failed: dict[Partition, Failed] = {}
        self._report: Mapping[Partition, PartitionReport] = {}
        self.segments: dict[Partition, tuple[Segment, ...]] = {}
        self.gaps: list[tuple[Partition, Gap]] = []
        self.stop_requests: list[str] = []
        admissions = Admissions()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(30)
            config = CopierConfig(
                fleet=fleet,
                worker=worker,
                slot=slot,
                run=1,
                host="127.0.0.1",
                port=server.getsockname()[1],
                token=admissions.issue(CopierId(slot, 1)),
                clusters={
                    "source": {"bootstrap.servers": source, **more.get("source", {})},
                    "target": {"bootstrap.servers": target, **more.get("target", {})},
                },
                commit_interval_s=commit_interval_s,
                transaction_interval_s=0.1,
                buffer_bytes=BUFFER_BYTES,
                silence_s=SILENCE_S,
            )
            self.process = self._spawn(config, folder, renew_s, stored_s)
            self._connection, _ = server.accept()
        self._admit(admissions)
        self._reader = threading.Thread(target=self._read, name="stub-driver", daemon=True)
        self._reader.start()
        self.send(Add(dict(partitions)))

    def _spawn(self, config: CopierConfig, folder: Path, *seconds: float) -> Process:
        name = f"copier-{config.worker}-{config.slot}"
        written = folder / f"{name}.config"
        written.write_bytes(pickle.dumps(config))
        return Process(
            name,
            [sys.executable, "-c", _RUN, written, *map(str, seconds)],
            log=folder / f"{name}.log",
            env={"PYTHONPATH": os.pathsep.join((str(TESTKIT), *SOURCES))},
        )

    def _admit(self, admissions: Admissions) -> None:
        with self._connection.makefile("rb") as lines:
            hello = decode(lines.readline())
            assert isinstance(hello, Hello)
            challenge = admissions.challenge(hello)
            self.send(challenge)
            response = decode(lines.readline())
            assert isinstance(response, ChallengeResponse)
            admissions.redeem(hello, challenge, response)

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    @property
    def report(self) -> Mapping[Partition, PartitionReport]:
        return self._report

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._take(decode(line))
        except OSError:
            return  # the copier is gone

    def _take(self, message: Message) -> None:
        match message:
            case ProofRequest():
                self.proof_requests.append(message)
                self._respond(message)
            case CopierReport(partitions, segments=segments):
                self._report = {**self._report, **partitions}
                self.segments.update(segments)
            case StopRequest(reason):
                self.stop_requests.append(reason)
                if self.mode != "silent":
                    self.send(Stop())
            case GapPassed(partition, gap):
                self.gaps.append((partition, gap))
            case Released(partitions):
                self.released |= set(partitions)
                self._forget(partitions)
            case Failed(partition):
                self.failed[partition] = message
                self._forget((partition,))
            case _:
                return

    def _forget(self, released: Iterable[Partition]) -> None:
        gone = set(released)
        self._report = {part: report for part, report in self._report.items() if part not in gone}

    def _respond(self, request: ProofRequest) -> None:
        if self.mode == "grant":
            granted = {part: self.grant(part, epoch) for part, epoch in request.partitions.items()}
            self.send(ProofResponse(request.request_id, granted, {}))
        elif self.mode == "refuse":
            self.send(
                ProofResponse(
                    request.request_id, {}, dict.fromkeys(request.partitions, "not yours any more")
                )
            )

    def all_online(self) -> bool:
        report = self._report
        return bool(report) and all(row.state is PartitionState.ONLINE for row in report.values())

    def wait_online(self, deadline_s: float = 20.0) -> None:
        eventually(self.all_online, deadline_s, "all partitions are ONLINE")

    def caught_up(self, ends: Mapping[Partition, int]) -> bool:
        """Everything the source had was copied, and committed."""
        report = self._report
        return self.all_online() and all(
            partition in report and report[partition].committed >= end
            for partition, end in ends.items()
        )

    def wait_caught_up(self, deadline_s: float = 30.0) -> None:
        """Wait until all is copied as of the moment of the call."""
        ends = {
            partition: offsets(self._source, partition.topic, isolation="read_committed")[
                partition.number
            ][1]
            for partition in self._partitions
        }
        eventually(lambda: self.caught_up(ends), deadline_s, "all is copied and committed")

    def remove(self, *partitions: Partition) -> None:
        self.send(Remove(partitions))

    def stop(self, deadline_s: float = 30.0) -> None:
        """End the copier cleanly; it sends Released for all its partitions."""
        if self.process.running:
            self.send(Stop())
            assert self.process.wait(deadline_s) == 0, self.process.log_tail()
        self.close()

    def close(self) -> None:
        """Make sure that nothing is left, however the test went."""
        self.process.kill_tree()
        self._connection.close()
        self._reader.join(timeout=5)
