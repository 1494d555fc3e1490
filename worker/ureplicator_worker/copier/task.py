"""The copier: what runs inside a Spark task, until it is stopped.

One loop with a selector: the lifeline, the connections of the lanes, and the events of the threads (one
per cluster that reads metadata and connects, one per route that holds the right to copy). A turn of the
loop reads what is there, then sends what can be sent, that of caught-up partitions first.

The copier ends on Stop, which it requests itself at SIGTERM, or when the lifeline closes: both times it
drains and commits first, for a bounded time. After that the driver waits no longer, and the next owner
fences the copier anyway.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from functools import partial

from ureplicator_common.kafka.broker_order import BrokerOrder, broker_order
from ureplicator_common.kafka.client import CLIENT_ID, ClusterClient, open_client
from ureplicator_common.kafka.map_log.writing import KafkaMapLog
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.probe_topic import probe_topic
from ureplicator_common.logging_setup import set_up
from ureplicator_common.model import Partition, Route, WorkerId, position_group, transactional_id
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_worker.copier.lane import SocketGroup
from ureplicator_worker.copier.lanes.raw_lane import RawLane
from ureplicator_worker.copier.loop.allocator import keep_freed_memory
from ureplicator_worker.copier.loop.driver_link import DriverLink
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.loop.process_end import STOP_REQUEST_S, StackDump, on_sigterm
from ureplicator_worker.copier.loop.socket_selector import SocketSelector
from ureplicator_worker.copier.messages import OwnershipEvent
from ureplicator_worker.copier.net.buffers import RouteShares
from ureplicator_worker.copier.net.metadata import ClusterMetadata, MetadataEvent
from ureplicator_worker.copier.ownership.data_producers import random_suffix
from ureplicator_worker.copier.ownership.target_check import KafkaTargetCheck
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.raw.byte_limits import ByteLimits, RouteLimits
from ureplicator_worker.copier.reporting import OwnUse, measures, total_latency
from ureplicator_worker.copier.route_copier import RouteCopier
from ureplicator_worker.copier.source_offsets import SourceOffsetPublisher
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline.client import LifelineClient, LifelineClosed, open_lifeline
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierConfig,
    HandlerReport,
    Message,
    PartitionReport,
    ProofResponse,
    PublishedSettings,
    PublishedShares,
    Remove,
    Stop,
    StopRequest,
)

logger = logging.getLogger(__name__)

REPORT_EVERY_S = 0.2
TURN_S = 0.05
STOP_TIMEOUT_S = 15.0
THREAD_SWITCH_S = 0.001
"""The commit thread must not keep the interpreter from the data loop for the default 5 ms."""

REQUEST_TIMEOUT_S = 5.0
"""Time for a request of the threads that may block."""


def copy(config: CopierConfig) -> None:
    """Copy what the driver adds, until it stops the copier or is gone."""
    set_up(as_json=config.log_json, name=f"copier {config.slot}")
    keep_freed_memory()
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_S)
    try:
        copier = Copier(config)
    except LifelineClosed as error:
        logger.error("no lifeline to %s:%d: %s", config.host, config.port, error)
        return
    try:
        with on_sigterm(copier.terminate):
            copier.run()
    finally:
        copier.close()
        sys.setswitchinterval(switch_s)


def client_id(config: CopierConfig, cluster: str) -> str:
    """Name of the copier in a cluster's logs, metrics and quotas; `client.id` replaces its beginning."""
    prefix = config.clusters[cluster].get("client.id", CLIENT_ID)
    return f"{prefix}-{config.fleet}-{config.worker}-{config.slot}"


class Copier:
    def __init__(self, config: CopierConfig) -> None:
        """Raises LifelineClosed."""
        self._config = config
        lifeline = LifelineClient(open_lifeline(config))
        self._driver = DriverLink(lifeline, received=self._handle_message)
        self._stacks = StackDump(lifeline.fileno(), silence_s=config.silence_s)
        self._loop = SocketSelector()
        self._memory = RouteShares(limit_bytes=config.buffer_bytes)
        self._limits = ByteLimits()
        self._routes: dict[Route, RouteCopier] = {}
        self._orders: dict[str, BrokerOrder] = {}
        self._report_at_s = 0.0
        self._use = OwnUse()
        self._stop_by_s: float | None = None
        self._terminated = False
        self._stop_requested_s: float | None = None

    def run(self) -> None:
        while not self._is_done():
            self._turn()

    def _is_done(self) -> bool:
        if self._stop_by_s is None:
            return False
        if time.monotonic() > self._stop_by_s:
            for route in self._routes.values():
                route.holder.give_up()
            return True
        return all(route.idle for route in self._routes.values())

    def _turn(self) -> None:
        self._loop.turn(self._sockets(), timeout_s=TURN_S, work=self._work)
        if self._terminated:
            self._request_stop(time.monotonic())
        if self._driver.closed:
            self._stacks.close()
            self._stop()
        now_s = time.monotonic()
        if now_s >= self._report_at_s:
            self._report_at_s = now_s + REPORT_EVERY_S
            self._report()

    def _work(self) -> None:
        self._memory.share({name for name, route in self._routes.items() if not route.idle})
        now_s = time.monotonic()
        self._stacks.turn(now_s)
        for route in self._routes.values():
            route.work(now_s)

    def _sockets(self) -> list[SocketGroup]:
        groups: list[SocketGroup] = [self._driver]
        for route in self._routes.values():
            groups += route.lane.sockets()
        return groups

    def _handle_message(self, message: Message) -> None:
        match message:
            case Add(partitions):
                for route in {partition.route for partition in partitions}:
                    self._route(route).holder.add(
                        {part: epoch for part, epoch in partitions.items() if part.route == route}
                    )
            case Remove(partitions):
                for partition in partitions:
                    self._route(partition.route).holder.remove(partition)
            case PublishedSettings():
                known = self._routes.get(message.route)
                if known is not None:
                    known.change_settings(message)
            case PublishedShares(version, slots):
                shares = slots.get(self._config.slot, {})
                self._limits.change(version, shares, time.monotonic())
            case ProofResponse():
                self._routes[message.route].on_proof(message)
            case Stop():
                self._stop()
            case _:
                raise AssertionError(message)

    def terminate(self) -> None:
        """The process is to end. Safe in a signal handler."""
        self._terminated = True

    def _request_stop(self, now_s: float) -> None:
        """Have the driver stop this copier; leave a driver that does not."""
        if self._stop_requested_s is None:
            self._stop_requested_s = now_s
            logger.info("SIGTERM: the copier drains")
            self._driver.send(StopRequest("its process got SIGTERM"))
        elif self._stop_by_s is None and now_s - self._stop_requested_s > STOP_REQUEST_S:
            self._driver.close()

    def _stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = time.monotonic() + STOP_TIMEOUT_S
            for route in self._routes.values():
                route.remove_all()

    def _report(self) -> None:
        """Send a report, or skip it while the driver does not read: a later report holds all changes."""
        if not self._driver.ready:
            return
        partitions: dict[Partition, PartitionReport] = {}
        handlers: dict[str, HandlerReport] = {}
        for name, route in self._routes.items():
            partitions |= route.report(self._driver.reports.is_due)
            handlers |= route.lane.handled.reports(name)
        segments = {
            partition: segments
            for partition in self._driver.segments.due(self._copying)
            if (segments := self._routes[partition.route].segments(partition))
        }
        latency = total_latency(route.lane for route in self._routes.values())
        limits = self._limits.use()
        transactions = {name: route.transactions for name, route in self._routes.items()}
        measured = measures(latency, transactions, self._use.at(time.monotonic()))
        self._driver.report(partitions, latency.of_records, segments, limits, handlers, measured)

    def _copying(self) -> Iterator[Partition]:
        for route in self._routes.values():
            yield from route.copying

    def _route(self, route: Route) -> RouteCopier:
        known = self._routes.get(route)
        if known is None:
            known = self._routes[route] = self._open(route)
        return known

    def _open(self, route: Route) -> RouteCopier:
        config = self._config
        group = position_group(fleet=config.fleet, route=route)
        source_events, target_events = self._metadata_mailbox(), self._metadata_mailbox()
        source, target = (
            ClusterMetadata(name, new_client=partial(self._client, name), post=events.post)
            for name, events in ((route.source, source_events), (route.target, target_events))
        )
        lane = RawLane(
            source=source,
            source_events=source_events,
            target=target,
            target_events=target_events,
            pool=self._memory.pool(route),
            limits=RouteLimits(self._limits, route),
            transactional_id=self._transactional_id(route),
        )
        events: Mailbox[OwnershipEvent] = Mailbox(self._loop.wake)
        return RouteCopier(
            route,
            lane=lane,
            ownership=self._ownership(route, group, events),
            events=events,
            publisher=SourceOffsetPublisher(source, group=group, failures=Mailbox(self._loop.wake)),
            commit_interval_s=config.commit_interval_s,
            transaction_interval_s=config.transaction_interval_s,
            send=self._driver.send,
        )

    def _metadata_mailbox(self) -> Mailbox[MetadataEvent]:
        return Mailbox(self._loop.wake)

    def _ownership(self, route: Route, group: str, events: Mailbox[OwnershipEvent]) -> Ownership:
        config = self._config
        source, target = self._client(route.source), self._client(route.target)
        store = PositionStore(target, group=group, transactional_id=self._transactional_id(route))
        ownership = Ownership(
            name=str(route),
            worker=config.worker,
            slot=config.slot,
            store=store,
            source=source,
            target=target,
            post=events.post,
            count=Takeovers(store, source=source, target=target),
            map_log=KafkaMapLog(target, map_topic(fleet=config.fleet, route=route)),
            check=KafkaTargetCheck(
                target,
                topic=probe_topic(config.fleet),
                new_id=lambda: f"{self._transactional_id(route)}.probe.{random_suffix()}",
                wall_s=time.time,
            ),
        )
        ownership.start()
        return ownership

    def _transactional_id(self, route: Route) -> str:
        config = self._config
        worker = WorkerId(config.worker)
        return transactional_id(fleet=config.fleet, route=route, worker=worker, slot=config.slot)

    def _client(self, cluster: str) -> ClusterClient:
        """All clients of a cluster share what they learn about its brokers."""
        properties = self._config.clusters[cluster]
        order = broker_order(properties["bootstrap.servers"])
        return open_client(
            cluster,
            properties,
            timeout_s=REQUEST_TIMEOUT_S,
            order=self._orders.setdefault(cluster, order),
            client_id=client_id(self._config, cluster),
        )

    def close(self) -> None:
        self._stacks.close()
        self._driver.close()
        for route in self._routes.values():
            route.close()
        self._loop.close()
