"""Copier process: one `RouteCopier` for each route, under one loop.

    loop       follows the driver, copies a few records, commits at an interval, reports

The loop follows `ureplicator_worker.copier.route_copier` and `task` (the end). A commit that a dead copier
has in flight is left out: the transaction is open or complete, and positions are only read when stable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ureplicator_common.model import OwnerEpoch, Partition, Route, WorkerId
from ureplicator_testkit.simulation.kafka import Kafka
from ureplicator_testkit.simulation.kernel import Process, World
from ureplicator_testkit.simulation.route_copiers import RouteCopier, Terms
from ureplicator_worker.lifeline import messages

TURN_S = 0.7
STOP_TIMEOUT_S = 15.0
REPORT_S = 3.0


class Copier(Process):
    """`send` delivers a message to the driver; `ended` reports that the lifeline is closed."""

    def __init__(
        self,
        world: World,
        kafkas: Mapping[Route, Kafka],
        *,
        name: str,
        worker: WorkerId,
        slot: int,
        terms: Terms,
        send: Callable[[messages.Message], None],
        ended: Callable[[str], None],
    ) -> None:
        super().__init__(world, name)
        self._deliver, self._ended = send, ended
        self.lifeline = True
        self._inbox: deque[messages.Message | tuple[messages.ProofResponse, int]] = deque()
        self._proofs: dict[int, tuple[Route, int]] = {}
        """Number of a request of this process -> the route, and its own number there."""
        self._requests = 0
        self._stop_by_s: float | None = None
        self._reported: dict[Partition, messages.PartitionReport] = {}
        self._report_at_s = 0.0
        self._loop = self.actor("loop", self._turn)
        self.routes = {
            route: RouteCopier(
                self,
                kafka,
                route=route,
                worker=worker,
                slot=slot,
                terms=terms,
                send=partial(self._send_of, route),
                changed=self._wake,
            )
            for route, kafka in kafkas.items()
        }
        self.world.soon(self._loop)

    def _wake(self) -> None:
        self.world.soon(self._loop)

    def copies(self, partition: Partition) -> bool:
        """True if it copies the partition, and could commit it."""
        side = self.routes[partition.route]
        return partition in side.lane.position and side.positions.may_commit(partition)

    def receive(self, message: messages.Message) -> None:
        """A message from the driver."""
        self._inbox.append(message)
        self._wake()

    def receive_proof(self, response: messages.ProofResponse, proven_at: int) -> None:
        """`proven_at`: when the proof was made."""
        self._inbox.append((response, proven_at))
        self._wake()

    def driver_gone(self) -> None:
        self.lifeline = False
        self._wake()

    def died(self) -> None:
        for side in self.routes.values():
            side.positions.close()
        self._ended("its process is gone")

    # The loop.

    def _turn(self) -> float | None:
        if not self.lifeline:
            self._stop()
        while self._inbox:
            self._handle_message(self._inbox.popleft())
        for side in self.routes.values():
            side.work(self.world.now_s)
        self._send_report()
        if self._is_done():
            self.kill("stop requested")
            return None
        return TURN_S

    def _send_report(self) -> None:
        """A changed report at once, and all of it periodically: the driver detects silence."""
        report, now_s = self._report(), self.world.now_s
        if report != self._reported or now_s >= self._report_at_s:
            self._reported, self._report_at_s = report, now_s + REPORT_S
            self._send_to_driver(messages.CopierReport(report))

    def _is_done(self) -> bool:
        if self._stop_by_s is None:
            return False
        owned = any(side.holder.owned for side in self.routes.values())
        return not owned or self.world.now_s > self._stop_by_s

    def _send_of(self, route: Route, message: messages.Message) -> None:
        """Send a message of a route's copier; its requests get numbers of the process."""
        if isinstance(message, messages.ProofRequest):
            self._requests += 1
            self._proofs[self._requests] = route, message.request_id
            message = replace(message, request_id=self._requests)
        self._send_to_driver(message)

    def _send_to_driver(self, message: messages.Message) -> None:
        if self.lifeline:
            self._deliver(message)

    def _handle_message(
        self, message: messages.Message | tuple[messages.ProofResponse, int]
    ) -> None:
        match message:
            case messages.Add(partitions):
                for route, epochs in _by_route(partitions).items():
                    self.routes[route].holder.add(epochs)
            case messages.Remove(partitions):
                for partition in partitions:
                    self.routes[partition.route].holder.remove(partition)
            case (messages.ProofResponse() as response, int(proven_at)):
                route, number = self._proofs.pop(response.request_id)
                response = replace(response, request_id=number)
                self.routes[route].receive_proof(response, proven_at)
            case messages.Stop():
                self._stop()

    def _stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = self.world.now_s + STOP_TIMEOUT_S
            for side in self.routes.values():
                side.release_all()

    def _report(self) -> dict[Partition, messages.PartitionReport]:
        """A report without figures that change at each turn; of the lag, whether there is any."""
        return {
            partition: messages.PartitionReport(
                report.state,
                report.reason,
                committed=min(report.committed, 0),
                lag=min(report.lag, 1),
            )
            for side in self.routes.values()
            for partition, report in side.holder.report().items()
        }


def _by_route(
    partitions: Mapping[Partition, OwnerEpoch],
) -> dict[Route, dict[Partition, OwnerEpoch]]:
    found: dict[Route, dict[Partition, OwnerEpoch]] = {}
    for partition, epoch in partitions.items():
        found.setdefault(partition.route, {})[partition] = epoch
    return found
