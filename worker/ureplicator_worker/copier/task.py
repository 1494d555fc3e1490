"""The copier: what runs inside a Spark task, until told to stop.

One loop with a selector: the lifeline, the hot connections, and a mailbox of the threads (one per
cluster that asks for metadata and connects, one per route that holds the right to copy). A turn of the
loop reads what is there, then sends what can be sent.

The copier ends when told to stop, or when the lifeline closes: both times it drains and commits first,
for a bounded time. Nobody is left to be told anything then, and the next owner fences it anyway.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.logging_setup import set_up
from ureplicator_common.model import Partition, Route, WorkerId, position_group, transactional_id
from ureplicator_worker.copier.ownership import Ownership
from ureplicator_worker.copier.raw.net.buffers import BufferPool
from ureplicator_worker.copier.raw.net.connection import Connection
from ureplicator_worker.copier.raw.net.connections import Connections
from ureplicator_worker.copier.raw.net.metadata import ClusterMetadata, MetadataEvent
from ureplicator_worker.copier.route_copier import RouteCopier
from ureplicator_worker.lifeline.client import LifelineClient, LifelineClosed
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierConfig,
    CopierReport,
    Hello,
    Message,
    ProofRequest,
    ProofResponse,
    Remove,
    Stop,
)

REPORT_EVERY_S = 0.2
TURN_S = 0.05
STOP_PATIENCE_S = 15.0
THREAD_SWITCH_S = 0.001
"""The commit thread must not keep the interpreter from the data loop for the default 5 ms."""

COLD_TIMEOUT_S = 5.0


def copy(order: CopierConfig) -> None:
    """Copy what the driver says, until it says stop or is gone."""
    set_up(name=f"copier {order.slot}")
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_S)
    try:
        copier = Copier(order)
    except LifelineClosed:
        return
    try:
        copier.run()
    finally:
        copier.close()
        sys.setswitchinterval(switch_s)


class Copier:
    def __init__(self, order: CopierConfig) -> None:
        """Raises LifelineClosed."""
        self._order = order
        self._lifeline: LifelineClient | None = LifelineClient(order.host, order.port)
        self._selector = selectors.DefaultSelector()
        self._masks: dict[Any, tuple[int, int]] = {}
        self._mailbox: deque[Callable[[], None]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._pool = BufferPool(limit_bytes=order.buffer_bytes)
        self._routes: dict[Route, RouteCopier] = {}
        self._asks: dict[int, tuple[RouteCopier, int]] = {}
        self._ask = 0
        self._report_at_s = 0.0
        self._stop_by_s: float | None = None

    def run(self) -> None:
        self._say(Hello(self._order.token, os.getpid()))
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        while not self._done():
            self._turn()

    def _done(self) -> bool:
        if self._stop_by_s is None:
            return False
        if time.monotonic() > self._stop_by_s:
            for route in self._routes.values():
                route.give_up()
            return True
        return all(route.idle for route in self._routes.values())

    def _turn(self) -> None:
        self._register()
        for key, mask in self._selector.select(TURN_S):
            self._on_ready(key.fileobj, mask)
        while self._mailbox:
            self._mailbox.popleft()()
        now_s = time.monotonic()
        for route in self._routes.values():
            route.work(now_s)
        if now_s >= self._report_at_s:
            self._report_at_s = now_s + REPORT_EVERY_S
            self._report()

    def _on_ready(self, ready: Any, mask: int) -> None:
        now_s = time.monotonic()
        if ready is self._wake_out:
            self._wake_out.recv(4096)
        elif ready is self._lifeline:
            self._on_lifeline(mask)
        else:
            connections = self._links_of(ready)
            if connections is not None and mask & selectors.EVENT_READ:
                connections.on_readable(ready, now_s)
            if connections is not None and mask & selectors.EVENT_WRITE:
                connections.on_writable(ready, now_s)

    def _links(self) -> list[Connections]:
        return [
            end.connections
            for route in self._routes.values()
            for end in (route.source, route.target)
        ]

    def _links_of(self, connection: Connection) -> Connections | None:
        for connections in self._links():
            if any(known is connection for known in connections.open):
                return connections
        return None

    def _register(self) -> None:
        """Tell the selector which sockets there are and what they wait for."""
        wanted: dict[Any, tuple[int, int]] = {}
        sockets: list[Any] = [
            connection for connections in self._links() for connection in connections.open
        ]
        if self._lifeline is not None:
            sockets.append(self._lifeline)
        for ready in sockets:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if ready.wants_write else 0)
            wanted[ready] = (ready.fileno(), mask)
        if wanted == self._masks:
            return
        for ready, (descriptor, _) in self._masks.items():
            if wanted.get(ready, (-1, 0))[0] != descriptor:
                self._unregister(descriptor)
        for ready, (descriptor, mask) in wanted.items():
            known = self._masks.get(ready)
            if known is None:
                self._unregister(descriptor)
                self._selector.register(ready, mask)
            elif known[1] != mask:
                self._selector.modify(ready, mask)
        self._masks = wanted

    def _unregister(self, descriptor: int) -> None:
        """By number: the socket behind it may be closed already, and the number in use again."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _on_lifeline(self, mask: int) -> None:
        assert self._lifeline is not None
        try:
            if mask & selectors.EVENT_WRITE:
                self._lifeline.on_writable()
            if mask & selectors.EVENT_READ:
                for message in self._lifeline.on_readable():
                    self._obey(message)
        except LifelineClosed:
            self._driver_gone()

    def _driver_gone(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        self._stop()

    def _obey(self, message: Message) -> None:
        match message:
            case Add(partitions):
                for route in {partition.route for partition in partitions}:
                    self._route(route).add(
                        {part: epoch for part, epoch in partitions.items() if part.route == route}
                    )
            case Remove(partitions):
                for partition in partitions:
                    self._route(partition.route).remove(partition)
            case ProofResponse():
                self._on_go(message)
            case Stop():
                self._stop()
            case _:
                raise AssertionError(message)

    def _stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = time.monotonic() + STOP_PATIENCE_S
            for route in self._routes.values():
                route.remove_all()

    def _on_go(self, go: ProofResponse) -> None:
        asked = self._asks.pop(go.request_id, None)
        if asked is not None:
            route, request = asked
            route.on_go(ProofResponse(request, go.granted, go.refused))

    def _say(self, message: Message) -> None:
        if self._lifeline is None:
            return
        try:
            self._lifeline.send(message)
        except LifelineClosed:
            self._driver_gone()

    def _report(self) -> None:
        """Left out while the driver does not read: a later one tells it all, and memory is finite."""
        if self._lifeline is None or self._lifeline.wants_write:
            return
        partitions: dict[Partition, Any] = {}
        counts: list[int] = []
        total_ms = 0.0
        for route in self._routes.values():
            partitions |= route.report()
            counts = [
                a + b
                for a, b in zip(
                    counts or [0] * len(route.latency_counts), route.latency_counts, strict=True
                )
            ]
            total_ms += route.latency_sum_ms
        self._say(CopierReport(partitions, tuple(counts), int(total_ms)))

    def _post(self, task: Callable[[], None]) -> None:
        """Have the loop do something; from any thread."""
        self._mailbox.append(task)
        try:
            self._wake_in.send(b"\0")
        except OSError:
            return  # full: the loop is awake anyway; closed: it has ended

    def _route(self, route: Route) -> RouteCopier:
        known = self._routes.get(route)
        if known is None:
            known = self._routes[route] = self._open(route)
        return known

    def _open(self, route: Route) -> RouteCopier:
        order = self._order
        group = position_group(fleet=order.fleet, route=route)
        worker = WorkerId(order.worker)
        target = self._client(route.target)
        opened: list[RouteCopier] = []
        store = PositionStore(
            target,
            group=group,
            transactional_id=transactional_id(
                fleet=order.fleet, route=route, worker=worker, slot=order.slot
            ),
        )
        ownership = Ownership(
            name=str(route),
            worker=order.worker,
            slot=order.slot,
            store=store,
            source=self._client(route.source),
            target=target,
            post=lambda event: self._post(lambda: opened[0].on_ownership(event)),
        )
        ownership.start()
        opened.append(
            RouteCopier(
                route,
                source=self._metadata(route.source, lambda event: opened[0].on_source(event)),
                target=self._metadata(route.target, lambda event: opened[0].on_target(event)),
                ownership=ownership,
                pool=self._pool,
                group=group,
                commit_interval_s=order.commit_interval_s,
                say=lambda message: self._say_for(opened[0], message),
            )
        )
        return opened[0]

    def _say_for(self, route: RouteCopier, message: Message) -> None:
        """Asks of all routes share the lifeline: number them anew."""
        if isinstance(message, ProofRequest):
            self._ask += 1
            self._asks[self._ask] = (route, message.request_id)
            message = ProofRequest(self._ask, message.partitions)
        self._say(message)

    def _client(self, cluster: str) -> ClusterClient:
        bootstrap = self._order.clusters[cluster]["bootstrap.servers"]
        return ClusterClient(bootstrap, timeout_s=COLD_TIMEOUT_S)

    def _metadata(self, cluster: str, take: Callable[[MetadataEvent], None]) -> ClusterMetadata:
        return ClusterMetadata(
            cluster,
            client=self._client(cluster),
            post=lambda event: self._post(lambda: take(event)),
        )

    def close(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
        for route in self._routes.values():
            route.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
