"""Partitions that the next request to each source broker fetches. No I/O.

                     touch                          in a session, and its window is empty
    add ---> due <----------- settled          due -------------------------------------> settled
              |  put off (suspended, a retry later, no room): left out of the session, and due still

Most partitions of a large slot are quiet, and their part of a request does not change. So only those that
are due are examined for the next one. A partition is due as long as its window holds something, so the
windows that share the buffers are all among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ureplicator_common.kafka.client import ClusterView
from ureplicator_worker.copier.raw.broker_fetches import BrokerFetches
from ureplicator_worker.copier.raw.net.connections import NO_LEADER, Connections
from ureplicator_worker.copier.raw.net.fetch_api import Wanted
from ureplicator_worker.copier.raw.partition import FetchSide

PARTITION_BYTES = 1 << 20
MIN_PARTITION_BYTES = 256 << 10
MIN_LIMITED_BYTES = 16 << 10
"""A partition of a topic with a byte limit may bring so much, however many share the limit: many producers
send batches of that size."""


class FetchSchedule:
    """`target_node(fetch)`: the broker that its batches are sent to."""

    def __init__(
        self, connections: Connections, *, target_node: Callable[[FetchSide], int]
    ) -> None:
        self._connections = connections
        self._target_node = target_node
        self._partitions: dict[FetchSide, None] = {}
        self._due: dict[FetchSide, None] = {}
        self._brokers: dict[int, BrokerFetches] = {}
        self._view: ClusterView | None = None
        self._limited: frozenset[str] = frozenset()
        self._topic_bytes: dict[str, int] = {}

    @property
    def due(self) -> int:
        return len(self._due)

    @property
    def waiting(self) -> int:
        """Partitions whose window holds something."""
        return sum(not fetch.window.empty for fetch in self._due)

    def add(self, fetch: FetchSide) -> None:
        self._partitions[fetch] = None
        self._due[fetch] = None

    def remove(self, fetch: FetchSide) -> None:
        self._partitions.pop(fetch, None)
        self._due.pop(fetch, None)
        self._leave_out(fetch)

    def touch(self, fetch: FetchSide) -> None:
        """Something of the partition has changed."""
        if not fetch.finished:
            self._due[fetch] = None

    def scan(
        self,
        now_s: float,
        *,
        target_bytes: int | None,
        topic_rooms: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[int, list[FetchSide]]:
        """Due partitions that may be fetched now, by leader; and every broker that is fetched from.

        `target_bytes`: nothing is fetched for a target broker for which more waits; None: no limit.
        `topic_rooms`: limited topics, and the bytes that may be fetched of each now.
        """
        self._limit_topics(topic_rooms)
        if self._view is not self._connections.view:
            self._view = self._connections.view
            self._due = dict.fromkeys(self._partitions)
        full = set() if target_bytes is None else self._full_targets(target_bytes)
        due: dict[int, list[FetchSide]] = {}
        for fetch in self._due:
            leader = self._connections.leader(*fetch.topic_partition)
            put_off = fetch.suspended or now_s < fetch.retry_at_s
            if topic_rooms:
                put_off = put_off or topic_rooms.get(fetch.partition.topic) == 0
            put_off = put_off or (bool(full) and self._target_node(fetch) in full)
            if put_off or leader.node_id != fetch.node_id:
                self._leave_out(fetch)
            if not put_off:
                due.setdefault(leader.node_id, []).append(fetch)
        for node_id, broker in self._brokers.items():
            if broker.partitions:
                due.setdefault(node_id, [])
        return due

    def compose(
        self, node_id: int, due: Iterable[FetchSide], *, version: int, room_bytes: int
    ) -> BrokerFetches:
        """Bring the next request to a broker up to date; each partition may take `room_bytes`."""
        broker = self._broker(node_id, version)
        for fetch in due:
            if not fetch.window.empty and fetch.window.queued_bytes >= room_bytes:
                self._leave_out(fetch)
                continue
            epoch = self._connections.leader(*fetch.topic_partition).epoch
            limit_bytes = self._topic_bytes.get(fetch.partition.topic)
            broker.fetch(
                fetch,
                wanted(fetch, leader_epoch=epoch, room_bytes=room_bytes, limit_bytes=limit_bytes),
            )
            fetch.node_id = node_id
            if fetch.window.empty and limit_bytes is None:
                del self._due[fetch]
        return broker

    def broker(self, node_id: int) -> BrokerFetches:
        """Fetches of a broker to which a request was sent."""
        return self._brokers[node_id]

    def forget_session(self, node_id: int) -> None:
        broker = self._brokers.pop(node_id, None)
        for fetch in broker.partitions.values() if broker else ():
            fetch.node_id = NO_LEADER.node_id
            self._due[fetch] = None

    def _broker(self, node_id: int, version: int) -> BrokerFetches:
        """A session keeps to its version, unless a partition needs a lower one."""
        broker = self._brokers.get(node_id)
        if broker is None or version < broker.version:
            self.forget_session(node_id)
            broker = BrokerFetches(version, client_id=self._connections.client_id)
            self._brokers[node_id] = broker
        return broker

    def _limit_topics(self, rooms: Mapping[str, int]) -> None:
        """Divide the room of each limited topic among its partitions, which are due at each scan."""
        if rooms.keys() != self._limited:
            self._limited = frozenset(rooms)
            self._due = dict.fromkeys(self._partitions)
        self._topic_bytes.clear()
        if rooms:
            counts = Counter(
                fetch.partition.topic for fetch in self._due if fetch.partition.topic in rooms
            )
            for topic, count in counts.items():
                self._topic_bytes[topic] = max(MIN_LIMITED_BYTES, rooms[topic] // count)

    def _full_targets(self, limit_bytes: int) -> set[int]:
        full = full_targets(self._due, self._target_node, limit_bytes=limit_bytes)
        if full:
            self._due = dict.fromkeys(self._partitions)
        return full

    def _leave_out(self, fetch: FetchSide) -> None:
        broker = self._brokers.get(fetch.node_id)
        if broker is not None:
            broker.leave_out(fetch)
        fetch.node_id = NO_LEADER.node_id


def full_targets(
    partitions: Iterable[FetchSide],
    target_node: Callable[[FetchSide], int],
    *,
    limit_bytes: int,
) -> set[int]:
    """Target brokers for which so much waits that nothing more is fetched for them."""
    held: dict[int, int] = {}
    for fetch in partitions:
        if not fetch.window.empty:
            node_id = target_node(fetch)
            held[node_id] = held.get(node_id, 0) + fetch.window.queued_bytes
    return {node_id for node_id, count in held.items() if count > limit_bytes}


def wanted(
    fetch: FetchSide, *, leader_epoch: int, room_bytes: int, limit_bytes: int | None = None
) -> Wanted:
    """One of two sizes: in a session each partition whose size changes is named again. `limit_bytes`: no
    more than that."""
    size_bytes = PARTITION_BYTES if room_bytes >= PARTITION_BYTES else MIN_PARTITION_BYTES
    return Wanted(
        offset=fetch.offset,
        leader_epoch=leader_epoch,
        last_fetched_epoch=fetch.leader_epoch,
        max_bytes=size_bytes if limit_bytes is None else min(size_bytes, limit_bytes),
    )
