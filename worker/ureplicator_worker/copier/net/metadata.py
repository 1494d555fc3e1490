"""Threads for all that may block on one cluster: metadata, connections, publication of positions.

    metadata       one thread: refreshes the view when it is wanted, and every few seconds: former leaders
                   refuse requests, but only the topic ids show that a topic was recreated. Of topics that
                   are added, it reads these alone
    connections    a few threads, so that brokers that do not respond hold up no others
    publication    one thread, with a client of its own

None waits for another: a leader's move is seen, and its broker connected to, while a coordinator or
another broker is silent. The threads post events: a new view of the cluster, a connection ready for
Fetch and Produce, or a failure. All requests have time limits, so `close` ends all threads.
"""

from __future__ import annotations

import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import (
    Broker,
    ClusterClient,
    ClusterView,
    connect,
)
from ureplicator_common.kafka.features import newest_versions
from ureplicator_common.kafka.publication import publish_positions
from ureplicator_common.kafka.security.login import Login

REFRESH_EVERY_S = 5.0
MIN_REFRESH_INTERVAL_S = 0.1
MIN_REST = 10
"""Rest after a refresh that others want to bring forward, in times of the processor time that it took: a view
of 5,000 topics takes a tenth of a second, and while a broker is away it is wanted all the time."""
REQUEST_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 2.0
CONNECTS_AT_ONCE = 8
PUBLISH_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """`topics`: those that the view was read for; one that it does not show does not exist."""

    view: ClusterView
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """No broker of the cluster responds."""

    reason: str


@dataclass(frozen=True, slots=True)
class Connected:
    """`newest`: the highest version of each request that the broker takes, by API key; `login`: the one that
    the connection was opened with."""

    node_id: int
    connection: socket.socket
    newest: Mapping[int, int]
    login: Login | None = None


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    node_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class MetadataCrashed:
    """An unexpected error in a thread: the copier must end, too."""

    error: Exception


MetadataEvent = ViewChanged | ClusterUnreachable | Connected | ConnectFailed | MetadataCrashed


class ClusterMetadata:
    """All methods return at once; results come through `post`."""

    def __init__(
        self,
        cluster: str,
        *,
        new_client: Callable[[], ClusterClient],
        post: Callable[[MetadataEvent], None],
    ) -> None:
        self._new_client = new_client
        self._client = new_client()
        self._publisher: ClusterClient | None = None
        self._post = post
        self._closed = False
        self._connects = ThreadPoolExecutor(CONNECTS_AT_ONCE, f"connect-{cluster}")
        self._publications = ThreadPoolExecutor(1, f"publish-{cluster}")
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._topics: frozenset[str] = frozenset()
        self._added: Set[str] = frozenset()
        self._last: ViewChanged | None = None
        self._due_s = 0.0
        self._added_due_s = math.inf
        self._read_s = 0.0
        self._rest_s = MIN_REFRESH_INTERVAL_S
        self._publishing = False
        self._thread = threading.Thread(target=self._run, name=f"metadata-{cluster}", daemon=True)
        self._thread.start()

    @property
    def cluster(self) -> str:
        """Name of the cluster in reasons."""
        return self._client.name

    @property
    def client_id(self) -> str:
        """Name of this client in its requests."""
        return self._client.client_id

    def cover(self, topics: frozenset[str]) -> None:
        """Topics that the view is read for from now on."""
        if topics != self._topics:
            self._work.put(partial(self._add, topics - self._topics))
            self._topics = topics

    def refresh(self) -> None:
        self._work.put(self._hasten_refresh)

    def connect(self, broker: Broker) -> None:
        self._connects.submit(self._guard, lambda: self._connect(broker))

    def publish(
        self,
        group: str,
        positions: Mapping[tuple[str, int], Position],
        *,
        failed: Callable[[str], None],
    ) -> bool:
        """Commit positions to a group of the cluster. `failed` is called in a thread.

        False, and nothing done, while the last publication is in progress.
        """
        if self._publishing:
            return False
        self._publishing = True
        self._publications.submit(self._guard, lambda: self._publish(group, positions, failed))
        return True

    def close(self) -> None:
        """End the threads; they may be waiting for brokers, for a few seconds at most."""
        self._closed = True
        self._work.put(None)
        pools = (self._connects, self._publications)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join(timeout=2 * REQUEST_TIMEOUT_S)
        for pool in pools:
            pool.shutdown()
        self._client.close()
        if self._publisher is not None:
            self._publisher.close()

    def _run(self) -> None:
        self._guard(self._serve)

    def _guard(self, task: Callable[[], None]) -> None:
        """A thread's error is seen only if it is posted."""
        try:
            task()
        except Exception as error:
            self._post(MetadataCrashed(error))

    def _serve(self) -> None:
        while True:
            left_s = min(self._due_s, self._added_due_s) - time.monotonic()
            if left_s <= 0:
                self._refresh()
                continue
            try:
                task = self._work.get(timeout=left_s)
            except queue.Empty:
                continue
            if task is None:
                return
            task()

    def _hasten_refresh(self) -> None:
        """Bring the next refresh forward; requests that come in crowds share one."""
        self._due_s = min(self._due_s, self._read_s + self._rest_s)

    def _add(self, topics: Set[str]) -> None:
        """Read these topics soon; those that come in crowds share a request."""
        self._added |= topics
        if self._added:
            self._added_due_s = self._read_s + self._rest_s

    def _refresh(self) -> None:
        began_s = time.thread_time()
        self._read()
        self._rest_s = rest_s(time.thread_time() - began_s)

    def _read(self) -> None:
        """All topics if that is due, else those that were added."""
        self._read_s = time.monotonic()
        topics, last = self._topics, self._last
        is_whole = last is None or self._read_s >= self._due_s
        if is_whole:
            self._due_s = self._read_s + REFRESH_EVERY_S
        wanted = topics if is_whole else topics & self._added
        self._added_due_s = math.inf
        if not wanted:
            return
        try:
            view = self._client.view(sorted(wanted))
        except ClusterUnavailable as error:
            self._due_s = time.monotonic() + 0.5
            self._post(ClusterUnreachable(str(error)))
            return
        read = ViewChanged(view, wanted)
        self._added = frozenset()
        self._last = read if last is None or is_whole else merged(last, read, kept=topics)
        self._post(self._last)

    def _connect(self, broker: Broker) -> None:
        try:
            security = self._client.security
            connection, login = connect(
                broker, security=security, timeout_s=CONNECT_TIMEOUT_S, client_id=self.client_id
            )
            newest = newest_versions(
                broker,
                connection,
                security=security,
                timeout_s=CONNECT_TIMEOUT_S,
                client_id=self.client_id,
            )
        except ClusterUnavailable as error:
            self._post(ConnectFailed(broker.node_id, str(error)))
            return
        if self._closed:
            connection.close()
        else:
            self._post(Connected(broker.node_id, connection, newest, login))

    def _publish(
        self,
        group: str,
        positions: Mapping[tuple[str, int], Position],
        failed: Callable[[str], None],
    ) -> None:
        if self._publisher is None:
            self._publisher = self._new_client()
        try:
            with self._publisher.within(PUBLISH_TIMEOUT_S):
                refused = publish_positions(self._publisher, group, positions)
        except ClusterUnavailable as error:
            refused = {str(error)}
        finally:
            self._publishing = False
        if refused:
            failed(", ".join(sorted(refused)))


def merged(before: ViewChanged, read: ViewChanged, *, kept: Set[str]) -> ViewChanged:
    """The view of before, completed by one that was read for other topics. `kept`: topics that stay."""
    others = (before.topics & kept) - read.topics
    view = ClusterView(
        cluster_id=read.view.cluster_id,
        brokers=read.view.brokers,
        leaders={
            **{key: leader for key, leader in before.view.leaders.items() if key[0] in others},
            **read.view.leaders,
        },
        topic_ids={
            **{topic: id for topic, id in before.view.topic_ids.items() if topic in others},
            **read.view.topic_ids,
        },
        missing=(before.view.missing & others) | read.view.missing,
        refused={
            **{topic: why for topic, why in before.view.refused.items() if topic in others},
            **read.view.refused,
        },
    )
    return ViewChanged(view, others | read.topics)


def rest_s(work_s: float) -> float:
    """The least time from a refresh to the next, by the processor time that it took."""
    return min(REFRESH_EVERY_S, max(MIN_REFRESH_INTERVAL_S, MIN_REST * work_s))
