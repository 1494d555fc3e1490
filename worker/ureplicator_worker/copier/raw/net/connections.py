"""The connections for Fetch and Produce to the brokers of one cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, assert_never

from ureplicator_common.kafka.client import Broker, ClusterView, Leader
from ureplicator_worker.copier.raw.net.broker_health import BrokerHealth
from ureplicator_worker.copier.raw.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.raw.net.connection import BrokerConnection, ConnectionClosed
from ureplicator_worker.copier.raw.net.metadata import (
    ClusterMetadata,
    ClusterUnreachable,
    Connected,
    ConnectFailed,
    MetadataCrashed,
    MetadataEvent,
    ViewChanged,
)
from ureplicator_worker.copier.raw.net.varint import MalformedResponse

NO_LEADER = Leader(-1, -1)

logger = logging.getLogger(__name__)


class Connections:
    """`on_response(node_id, context, lease)` gets each response, and releases the lease;
    `on_lost(node_id, contexts)` gets the requests whose responses will never come."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        on_response: Callable[[int, Any, Lease], None],
        on_lost: Callable[[int, list[Any]], None],
        silence_timeout_s: float,
    ) -> None:
        self._metadata = metadata
        self.client_id = metadata.client_id
        self.view: ClusterView | None = None
        """The newest one that was read, with the leaders that brokers have named since."""
        self._read: ClusterView | None = None
        self._leaders: dict[tuple[str, int], Leader] = {}
        """Those of the view. A broker that is lost moves thousands, so each is changed in place."""
        self.covered: frozenset[str] = frozenset()
        """Topics that the view was read for; one that it does not show does not exist."""
        self._pool = pool
        self._on_response = on_response
        self._on_lost = on_lost
        self._silence_timeout_s = silence_timeout_s
        self._open: dict[int, BrokerConnection] = {}
        self._connecting: set[int] = set()
        self.health = BrokerHealth()
        self.cluster_error = ""
        """Error of the last attempt to read the metadata; "" if it succeeded."""

    @property
    def open(self) -> Iterator[BrokerConnection]:
        return iter(self._open.values())

    def leader(self, topic: str, number: int) -> Leader:
        return NO_LEADER if self.view is None else self.view.leaders.get((topic, number), NO_LEADER)

    def error(self, topic: str, number: int) -> str:
        """Error between us and the leader of a partition; "" if none is known."""
        leader = self.leader(topic, number)
        error = self.health.error(leader.node_id)
        if not error and leader.node_id not in self._open:
            return self.cluster_error
        return error

    def connection_to(self, node_id: int, now_s: float) -> BrokerConnection | None:
        """The connection to a broker; None while it is being opened."""
        connection = self._open.get(node_id)
        if connection is None and self.view is not None and node_id in self.view.brokers:
            due = self.health.may_connect(node_id, now_s)
            if due and node_id not in self._connecting:
                self._connecting.add(node_id)
                self._metadata.connect(self.view.brokers[node_id])
        return connection

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

    def expects(self, event: MetadataEvent) -> bool:
        """False for a connection that others of the cluster wait for."""
        if isinstance(event, Connected | ConnectFailed):
            return event.node_id in self._connecting
        return True

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
                self._connecting.discard(node_id)
                self.health.failed(node_id, reason, now_s)
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
        for node_id in [node for node in self._open if node not in event.view.brokers]:
            self.drop(node_id, "left the cluster", now_s=0.0)
        for node_id, broker in event.view.brokers.items():
            if node_id in self._open and former.brokers.get(node_id) != broker:
                self.drop(node_id, "has another address now", now_s=0.0)

    def _on_connected(self, event: Connected) -> None:
        self._connecting.discard(event.node_id)
        if event.node_id in self._open:
            event.connection.close()
            return
        self._open[event.node_id] = BrokerConnection(
            event.connection, pool=self._pool, newest=event.newest
        )

    def on_readable(self, connection: BrokerConnection, now_s: float) -> None:
        node_id = self._node(connection)
        if node_id is None:
            return
        try:
            connection.on_readable(
                lambda context, lease: self._take(node_id, context, lease, now_s), now_s=now_s
            )
        except ConnectionClosed as error:
            self.drop(node_id, str(error), now_s=now_s)
        except MalformedResponse as error:
            self.drop(node_id, str(error), now_s=now_s)
            self.health.malformed(node_id, now_s)

    def on_writable(self, connection: BrokerConnection, now_s: float) -> None:
        node_id = self._node(connection)
        if node_id is None:
            return
        try:
            connection.on_writable()
        except ConnectionClosed as error:
            self.drop(node_id, str(error), now_s=now_s)

    def drop(self, node_id: int, reason: str, *, now_s: float) -> None:
        """Close a connection and give up its requests; a new one is opened when it is needed."""
        connection = self._open.pop(node_id)
        broker = self.view.brokers.get(node_id) if self.view else None
        reason = f"{broker or node_id}: {reason}"
        logger.warning("connection dropped: %s", reason)
        self.health.failed(node_id, reason, now_s)
        self._on_lost(node_id, connection.close())
        self.refresh()

    def reopen(self, node_id: int) -> None:
        """Give up the requests of a connection though its broker is well."""
        connection = self._open.pop(node_id, None)
        if connection is not None:
            self._on_lost(node_id, connection.close())

    def drop_silent(self, now_s: float) -> None:
        """Drop connections on which no byte has moved for too long.

        A broker reads nothing of a client while it throttles it.
        """
        for node_id, connection in list(self._open.items()):
            silence_s = min(connection.silence_s(now_s), now_s - self.health.held_until_s(node_id))
            if silence_s > self._silence_timeout_s:
                self.drop(node_id, f"silent for {self._silence_timeout_s:.0f} s", now_s=now_s)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _take(self, node_id: int, context: Any, lease: Lease, now_s: float) -> None:
        self.health.responded(node_id, now_s)
        try:
            self._on_response(node_id, context, lease)
        except MalformedResponse:
            self._on_lost(node_id, [context])
            raise
        self.health.parsed(node_id)

    def _node(self, connection: BrokerConnection) -> int | None:
        return next((node for node, known in self._open.items() if known is connection), None)


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
