"""What a copier knows about one cluster: a thread of its own asks, so that the data loop never waits.

The thread answers with events in the copier's mailbox: a new view of the cluster, a connection ready
for hot requests, or that something failed. It refreshes the view by itself every few seconds: leaders
tell us when they stop being leaders, but only the topic ids tell that a topic was recreated.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import (
    Broker,
    ClusterClient,
    ClusterView,
    connect,
    newest_versions,
)
from ureplicator_common.kafka.positions import publish_positions

REFRESH_EVERY_S = 5.0
REFRESH_AT_MOST_EVERY_S = 0.1
REQUEST_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """`asked`: the topics that it was to show; one that it does not is not there."""

    view: ClusterView
    asked: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """No broker of the cluster answers."""

    reason: str


@dataclass(frozen=True, slots=True)
class Connected:
    """`newest`: the highest version of each request that the broker takes, by API key."""

    node_id: int
    connection: socket.socket
    newest: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    node_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """Positions could not be published at the source; nothing depends on them."""

    reason: str


@dataclass(frozen=True, slots=True)
class MetadataCrashed:
    """The thread has met what it was not made for, and ended: so must the copier."""

    error: Exception


MetadataEvent = (
    ViewChanged | ClusterUnreachable | Connected | ConnectFailed | PublishFailed | MetadataCrashed
)


class ClusterMetadata:
    """All methods return at once; answers come through `post`."""

    def __init__(
        self, cluster: str, *, client: ClusterClient, post: Callable[[MetadataEvent], None]
    ) -> None:
        self._client = client
        self._post = post
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._topics: frozenset[str] = frozenset()
        self._due_s = 0.0
        self._asked_s = 0.0
        self._publishing = False
        self._thread = threading.Thread(target=self._run, name=f"metadata-{cluster}", daemon=True)
        self._thread.start()

    def follow(self, topics: frozenset[str]) -> None:
        """Topics that the view is to show from now on."""
        if topics != self._topics:
            self._topics = topics
            self.refresh()

    def refresh(self) -> None:
        self._work.put(self._soon)

    def connect(self, broker: Broker) -> None:
        self._work.put(lambda: self._connect(broker))

    def publish(self, group: str, positions: Mapping[tuple[str, int], Position]) -> bool:
        """False, and nothing done, while the last ones are still on their way."""
        if self._publishing:
            return False
        self._publishing = True
        self._work.put(lambda: self._publish(group, positions))
        return True

    def close(self) -> None:
        """End the thread; it may be waiting for a broker, for a few seconds at most."""
        self._work.put(None)
        self._thread.join(timeout=2 * REQUEST_TIMEOUT_S)
        self._client.close()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # nobody else would ever hear of it
            self._post(MetadataCrashed(error))

    def _serve(self) -> None:
        while True:
            try:
                task = self._work.get(timeout=max(0.001, self._due_s - time.monotonic()))
            except queue.Empty:
                self._refresh()
                continue
            if task is None:
                return
            task()

    def _soon(self) -> None:
        """Bring the next refresh forward, but let requests that come in crowds share one."""
        self._due_s = min(self._due_s, self._asked_s + REFRESH_AT_MOST_EVERY_S)

    def _refresh(self) -> None:
        self._asked_s = time.monotonic()
        self._due_s = self._asked_s + REFRESH_EVERY_S
        asked = self._topics
        if not asked:
            return
        try:
            view = self._client.view(sorted(asked))
        except ClusterUnavailable as error:
            self._due_s = time.monotonic() + 0.5
            self._post(ClusterUnreachable(str(error)))
        else:
            self._post(ViewChanged(view, asked))

    def _connect(self, broker: Broker) -> None:
        try:
            connection = connect(
                broker, security=self._client.security, timeout_s=CONNECT_TIMEOUT_S
            )
            newest = newest_versions(broker, connection, timeout_s=CONNECT_TIMEOUT_S)
        except ClusterUnavailable as error:
            self._post(ConnectFailed(broker.node_id, str(error)))
        else:
            self._post(Connected(broker.node_id, connection, newest))

    def _publish(self, group: str, positions: Mapping[tuple[str, int], Position]) -> None:
        try:
            refused = publish_positions(self._client, group, positions)
        except ClusterUnavailable as error:
            refused = {str(error)}
        finally:
            self._publishing = False
        if refused:
            self._post(PublishFailed(", ".join(sorted(refused))))
