"""The connections for Fetch and Produce to the brokers of one cluster.

A broker works on the requests of a connection one by one, and responds in their order. So a record of a
partition that is caught up would wait behind megabytes of a partition with a backlog. Each kind of
traffic has a connection of its own to a broker, opened when it is needed. A broker's health is one: what
one of its connections shows concerns all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple, assert_never

from ureplicator_common.kafka.client import Broker, ClusterView, Leader
from ureplicator_worker.copier.net.broker_health import BrokerHealth
from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.connection import BrokerConnection, ConnectionClosed
from ureplicator_worker.copier.net.metadata import (
    ClusterMetadata,
    ClusterUnreachable,
    Connected,
    ConnectFailed,
    MetadataCrashed,
    MetadataEvent,
    ViewChanged,
)
from ureplicator_worker.wire.varint import MalformedResponse

NO_LEADER = Leader(-1, -1)
BACKLOG_BYTES = 64 << 10
"""A partition that brings so much in a response, or has so much to send, has a backlog."""
BACKLOG_KEPT_S = 3.0
"""Time after the last of a backlog: longer than a response takes on a slow line (`line_rate.BUSY_S`). A
change of the connection waits until nothing is in flight, so it must be rare."""


class Traffic(IntEnum):
    """Partitions that are caught up; those with a backlog; those with slow followers (`aside`)."""

    LIVE = 0
    BACKLOG = 1
    ASIDE = 2


class Via(NamedTuple):
    """A connection: to a broker, for one kind of traffic."""

    node_id: int
    traffic: Traffic


_OTHER = {Traffic.LIVE: Traffic.BACKLOG, Traffic.BACKLOG: Traffic.LIVE}
NO_VIA = Via(NO_LEADER.node_id, Traffic.LIVE)

logger = logging.getLogger(__name__)


class Connections:
    """`on_response(via, context, lease)` gets each response, and releases the lease;
    `on_lost(via, contexts)` gets the requests whose responses will never come."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        on_response: Callable[[Via, Any, Lease], None],
        on_lost: Callable[[Via, list[Any]], None],
        silence_timeout_s: float,
    ) -> None:
        self._metadata = metadata
        self.client_id = metadata.client_id
        self.cluster = metadata.cluster
        self.view: ClusterView | None = None
        """The newest one that was read, with the leaders that brokers have named since."""
        self._read: ClusterView | None = None
        self._leaders: dict[tuple[str, int], Leader] = {}
        """Leaders of the view. A broker that is lost moves thousands, so each is changed in place."""
        self.covered: frozenset[str] = frozenset()
        """Topics that the view was read for; one that it does not show does not exist."""
        self._pool = pool
        self._on_response = on_response
        self._on_lost = on_lost
        self._silence_timeout_s = silence_timeout_s
        self._open: dict[Via, BrokerConnection] = {}
        self._connecting: dict[Via, None] = {}
        self.health = BrokerHealth()
        self.lost: Counter[int] = Counter()
        """Connections to each broker that were lost, or refused: behind one, it may have restarted."""
        self.opened = 0
        """Connections that were opened."""
        self.cluster_error = ""
        """Error of the last attempt to read the metadata; "" if it succeeded."""

    @property
    def open(self) -> Iterator[BrokerConnection]:
        return iter(self._open.values())

    def leader(self, topic: str, number: int) -> Leader:
        return NO_LEADER if self.view is None else self.view.leaders.get((topic, number), NO_LEADER)

    def error(self, topic: str, number: int) -> str:
        """Error between us and the leader of a partition; "" if none is known."""
        node_id = self.leader(topic, number).node_id
        error = self.health.error(node_id)
        if not error and not any((node_id, traffic) in self._open for traffic in Traffic):
            return self.cluster_error
        return error

    def connection_to(self, via: Via, now_s: float) -> BrokerConnection | None:
        """The connection to a broker; None while it is being opened."""
        connection = self._open.get(via)
        node_id = via.node_id
        if connection is None and self.view is not None and node_id in self.view.brokers:
            due = self.health.may_connect(node_id, now_s)
            if due and via not in self._connecting:
                self._connecting[via] = None
                self._metadata.connect(self.view.brokers[node_id])
        return connection

    def in_flight(self, via: Via) -> int | None:
        """Requests without a response; None while it is not open."""
        connection = self._open.get(via)
        return None if connection is None else connection.in_flight

    def learn(
        self, topic_partition: tuple[str, int], leader: Leader | None, broker: Broker | None
    ) -> bool:
        """Follow a new leader that a broker names. False, and the metadata are read, if it names none
        that is newer than the one in use, or none with an address."""
        view = self.view
        known = self.leader(*topic_partition)
        if view is None or leader is None or leader.epoch <= known.epoch:
            self.refresh()
            return False
        self._leaders[topic_partition] = leader
        if leader.node_id not in view.brokers:
            if broker is None:
                self.refresh()
                return False
            self.view = replace(view, brokers={**view.brokers, leader.node_id: broker})
        return True

    def cover(self, topics: frozenset[str]) -> None:
        self._metadata.cover(topics)

    def refresh(self) -> None:
        self._metadata.refresh()

    def on_metadata(self, event: MetadataEvent, now_s: float) -> bool:
        """True for a new view of the cluster."""
        match event:
            case ViewChanged():
                self._on_view(event)
                return True
            case ClusterUnreachable(reason):
                self.cluster_error = reason
            case Connected():
                self._on_connected(event)
            case ConnectFailed(node_id, reason):
                take_first(self._connecting, node_id)
                self.health.failed(node_id, reason, now_s)
                self.lost[node_id] += 1
                self.refresh()
            case MetadataCrashed(error):
                raise RuntimeError("the metadata thread crashed") from error
            case _:
                assert_never(event)
        return False

    def _on_view(self, event: ViewChanged) -> None:
        self.cluster_error = ""
        self.covered = event.topics
        if event.view is self._read:
            return
        self._read = event.view
        former = self.view
        self._leaders = newest_leaders(former, event.view)
        self.view = replace(event.view, leaders=self._leaders)
        if former is None:
            return
        for via in list(self._open):
            broker = event.view.brokers.get(via.node_id)
            if broker is None:
                self.drop(via, "left the cluster", now_s=0.0)
            elif former.brokers.get(via.node_id) != broker:
                self.drop(via, "has another address now", now_s=0.0)

    def _on_connected(self, event: Connected) -> None:
        via = take_first(self._connecting, event.node_id)
        self.opened += 1
        self._open[via] = BrokerConnection(
            event.connection,
            pool=self._pool,
            newest=event.newest,
            urgent=via.traffic is Traffic.LIVE,
            login=event.login,
            serial=self.opened,
        )

    def on_readable(self, connection: BrokerConnection, now_s: float) -> None:
        via = self._via(connection)
        if via is None:
            return
        try:
            connection.on_readable(
                lambda context, lease: self._take(via, context, lease, now_s), now_s=now_s
            )
        except ConnectionClosed as error:
            self.drop(via, str(error), now_s=now_s)
        except MalformedResponse as error:
            self.drop(via, str(error), now_s=now_s)
            self.health.malformed(via.node_id, now_s)

    def on_writable(self, connection: BrokerConnection, now_s: float) -> None:
        via = self._via(connection)
        if via is None:
            return
        try:
            connection.on_writable()
        except ConnectionClosed as error:
            self.drop(via, str(error), now_s=now_s)

    def drop(self, via: Via, reason: str, *, now_s: float) -> None:
        """Close a connection and give up its requests; a new one is opened when it is needed."""
        connection = self._open.pop(via)
        broker = self.view.brokers.get(via.node_id) if self.view else None
        reason = f"{broker or via.node_id}: {reason}"
        logger.warning("connection dropped: %s", reason)
        self.health.failed(via.node_id, reason, now_s)
        self.lost[via.node_id] += 1
        self._on_lost(via, connection.close())
        self.refresh()

    def reopen(self, via: Via) -> None:
        """Give up the requests of a connection though its broker is well."""
        connection = self._open.pop(via, None)
        if connection is not None:
            self._on_lost(via, connection.close())

    def drop_silent(self, now_s: float) -> None:
        """Drop connections on which no byte has moved for too long.

        A broker reads nothing of a client while it throttles it.
        """
        for via, connection in list(self._open.items()):
            held_until_s = self.health.held_until_s(via.node_id)
            silence_s = min(connection.silence_s(now_s), now_s - held_until_s)
            if silence_s > self._silence_timeout_s:
                self.drop(via, f"silent for {self._silence_timeout_s:.0f} s", now_s=now_s)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _take(self, via: Via, context: Any, lease: Lease, now_s: float) -> None:
        self.health.responded(via.node_id, now_s)
        try:
            self._on_response(via, context, lease)
        except MalformedResponse:
            self._on_lost(via, [context])
            raise
        self.health.parsed(via.node_id)

    def _via(self, connection: BrokerConnection) -> Via | None:
        return next((via for via, known in self._open.items() if known is connection), None)


def available(connections: Connections, via: Via, now_s: float) -> Via:
    """The connection itself, or, while it is being opened, the other one of the broker.

    A broker or a firewall may admit one connection only.
    """
    other = _OTHER.get(via.traffic)
    if other is None or connections.in_flight(via) is not None:
        return via
    instead = Via(via.node_id, other)
    if connections.in_flight(instead) is None:
        return via
    connections.connection_to(via, now_s)
    return instead


def take_first(connecting: dict[Via, None], node_id: int) -> Via:
    """The first that waits for a connection to a broker: all of them are alike."""
    via = next(via for via in connecting if via.node_id == node_id)
    del connecting[via]
    return via


def topic_change(view: ClusterView | None, topic: str, proven_id: str) -> tuple[str, bool] | None:
    """Reason and `temporary` if a topic is not the proven one; None if it is, or nothing is known."""
    if view is None:
        return None
    if topic in view.missing:
        return f"topic {topic} was deleted", True
    now_id = view.topic_ids.get(topic, proven_id)
    if now_id != proven_id:
        return f"topic {topic} was recreated: its id was {proven_id}, now it is {now_id}", False
    return None


def newest_leaders(
    former: ClusterView | None, latest: ClusterView
) -> dict[tuple[str, int], Leader]:
    """A broker that lags behind may name a former leader: its epoch is lower.

    Epochs of a recreated topic start again.
    """
    leaders = dict(latest.leaders)
    if former is None:
        return leaders
    for key, leader in former.leaders.items():
        same = former.topic_ids.get(key[0]) == latest.topic_ids.get(key[0])
        if same and key in leaders and leader.epoch > leaders[key].epoch:
            leaders[key] = leader
    return leaders
