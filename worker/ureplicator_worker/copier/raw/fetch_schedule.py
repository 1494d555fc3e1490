"""Partitions that the next request on each connection to a source broker fetches. No I/O.

                     touch                          in a live session, and its window is empty
    add ---> due <----------- settled          due ------------------------------------------> settled
              |  put off (suspended, a retry later, no room): left out of the session, and due still

Most partitions of a large slot are quiet, and their part of a request does not change. So only those that
are due are examined for the next one. A partition is due as long as its window holds something, so the
windows that share the buffers are all among them; and as long as it has a backlog, until it is live again.

A partition changes its connection once the other one has no request in flight, which would not fetch it. It
may then be in two requests: what the second response brings is discarded, since the offset has moved on.

**Long requests.** A broker looks at every partition of a session when a request comes, and again when it has
held it without data. 5,000 quiet partitions, ten times a second, cost it half a core. So it holds a request
for longer the more partitions there are (`live_wait_ms`). A partition that comes meanwhile does not wait for
its end: it begins on the connection of those with a backlog, as if it had one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ureplicator_common.kafka.client import ClusterView
from ureplicator_worker.copier.net.connections import (
    BACKLOG_BYTES,
    NO_VIA,
    Connections,
    Traffic,
    Via,
    available,
)
from ureplicator_worker.copier.raw.broker_fetches import BrokerFetches
from ureplicator_worker.copier.raw.partition import FetchSide, FetchWindow
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.wire.fetch_api import Wanted

MIN_WAIT_MS, MAX_WAIT_MS = 100, 500
"""Waits of a broker that holds a request without data; the longest is the default of Kafka's own
consumer."""
PARTITIONS_PER_WAIT_MS = 2
PARTITION_BYTES = 1 << 20
FAR_PARTITION_BYTES = 4 << 20
MIN_PARTITION_BYTES = 256 << 10
MIN_LIMITED_BYTES = 16 << 10
"""A partition of a topic with a byte limit may bring so much, however many share the limit: many producers
send batches of that size."""
LIVE_PARTITION_BYTES = 2 * BACKLOG_BYTES
"""Responses end with whole batches, so a partition with a backlog brings less than its limit."""


class FetchSchedule:
    """`target_node(fetch)`: the broker that its batches are sent to."""

    def __init__(
        self, connections: Connections, *, target_node: Callable[[FetchSide], int]
    ) -> None:
        self._connections = connections
        self._target_node = target_node
        self._partitions: dict[FetchSide, None] = {}
        self._due: dict[FetchSide, None] = {}
        self._brokers: dict[Via, BrokerFetches] = {}
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
    ) -> dict[Via, list[FetchSide]]:
        """Due partitions that may be fetched now, by connection; and each that is fetched on.

        Those without a leader are under NO_VIA.

        `target_bytes`: nothing is fetched for a target broker for which more waits; None: no limit.
        `topic_rooms`: limited topics, and the bytes that may be fetched of each now.
        """
        self._limit_topics(topic_rooms)
        if self._view is not self._connections.view:
            self._follow_leaders()
        full = set() if target_bytes is None else self._full_targets(target_bytes)
        due: dict[Via, list[FetchSide]] = {}
        for fetch in self._due:
            via = self._via(fetch, now_s)
            put_off = fetch.suspended or now_s < fetch.retry_at_s
            if topic_rooms:
                put_off = put_off or topic_rooms.get(fetch.partition.topic) == 0
            put_off = put_off or (bool(full) and self._target_node(fetch) in full)
            if put_off or via != fetch.via:
                self._leave_out(fetch)
            if not put_off:
                due.setdefault(via, []).append(fetch)
        for via, broker in self._brokers.items():
            if broker.partitions:
                due.setdefault(via, [])
        return due

    def _follow_leaders(self) -> None:
        """Partitions with another leader than in the last view are due."""
        former, self._view = self._view, self._connections.view
        before = former.leaders if former else {}
        now = self._view.leaders if self._view else {}
        if before is not now:
            for fetch in self._partitions:
                key = fetch.topic_partition
                if before.get(key) != now.get(key):
                    self._due[fetch] = None

    def _via(self, fetch: FetchSide, now_s: float) -> Via:
        node_id = self._connections.leader(*fetch.topic_partition).node_id
        if node_id < 0:
            return NO_VIA
        wanted_via = Via(
            node_id, Traffic.BACKLOG if now_s < fetch.backlog_until_s else Traffic.LIVE
        )
        via = available(self._connections, wanted_via, now_s)
        if fetch.via.node_id != node_id and self._is_held_long(via):
            return Via(node_id, Traffic.BACKLOG)
        stays = fetch.via.node_id == node_id and bool(self._connections.in_flight(via))
        return fetch.via if stays else via

    def _is_held_long(self, via: Via) -> bool:
        """True if the broker holds a request of those that are caught up, for longer than the least time."""
        if via.traffic is not Traffic.LIVE or not self._connections.in_flight(via):
            return False
        broker = self._brokers.get(via)
        return broker is not None and live_wait_ms(len(broker.partitions)) > MIN_WAIT_MS

    def compose(
        self,
        via: Via,
        due: Iterable[FetchSide],
        *,
        version: int,
        room_bytes: int,
        far: bool = False,
    ) -> BrokerFetches:
        """Bring the next request on a connection up to date; each partition may take `room_bytes`. `far`:
        the broker is far away."""
        broker = self._broker(via, version)
        live = via.traffic is Traffic.LIVE
        for fetch in due:
            most_bytes = window_bytes(fetch.window, room_bytes)
            if not fetch.window.empty and fetch.window.queued_bytes >= most_bytes:
                self._leave_out(fetch)
                continue
            max_bytes = LIVE_PARTITION_BYTES if live else partition_bytes(most_bytes, far=far)
            epoch = self._connections.leader(*fetch.topic_partition).epoch
            limit_bytes = self._topic_bytes.get(fetch.partition.topic)
            allowed = max_bytes if limit_bytes is None else min(max_bytes, limit_bytes)
            broker.fetch(fetch, wanted(fetch, leader_epoch=epoch, max_bytes=allowed))
            fetch.via = via
            if live and fetch.window.empty and limit_bytes is None:
                del self._due[fetch]
        return broker

    def broker(self, via: Via) -> BrokerFetches:
        """Fetches of a connection on which a request was sent."""
        return self._brokers[via]

    def forget_session(self, via: Via) -> None:
        broker = self._brokers.pop(via, None)
        for fetch in broker.partitions.values() if broker else ():
            fetch.via = NO_VIA
            self._due[fetch] = None

    def _broker(self, via: Via, version: int) -> BrokerFetches:
        """A session keeps to its version, unless a partition needs a lower one."""
        broker = self._brokers.get(via)
        if broker is None or version < broker.version:
            self.forget_session(via)
            broker = BrokerFetches(version, client_id=self._connections.client_id)
            self._brokers[via] = broker
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
        broker = self._brokers.get(fetch.via)
        if broker is not None:
            broker.leave_out(fetch)
        fetch.via = NO_VIA


def live_wait_ms(partitions: int) -> int:
    """Time for which a broker may hold a request for so many partitions that are caught up."""
    return min(MAX_WAIT_MS, max(MIN_WAIT_MS, partitions // PARTITIONS_PER_WAIT_MS))


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


def window_bytes(window: FetchWindow, room_bytes: int) -> int:
    """Most bytes that may wait: few until the target has acknowledged something. How far it is, and so how
    batches are merged, is not known before."""
    if isinstance(window, SendWindow) and not window.proven:
        return min(room_bytes, MIN_PARTITION_BYTES)
    return room_bytes


def partition_bytes(room_bytes: int, *, far: bool) -> int:
    """One of few sizes: in a session each partition whose size changes is named again. One response comes
    in a round trip to a far broker, so it is to be large there."""
    if far and room_bytes >= FAR_PARTITION_BYTES:
        return FAR_PARTITION_BYTES
    return PARTITION_BYTES if room_bytes >= PARTITION_BYTES else MIN_PARTITION_BYTES


def wanted(fetch: FetchSide, *, leader_epoch: int, max_bytes: int) -> Wanted:
    return Wanted(
        offset=fetch.offset,
        leader_epoch=leader_epoch,
        last_fetched_epoch=fetch.leader_epoch,
        max_bytes=max_bytes,
    )
