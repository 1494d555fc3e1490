"""Fetches of one source broker, kept from one request to the next. Pure.

The broker remembers what a session fetches (KIP-227), so a request names only changes. This keeps the other
side of it: composing a request costs what has changed, too, however many quiet partitions there are.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka.client import CLIENT_ID
from ureplicator_worker.copier.raw.partition import FetchSide
from ureplicator_worker.wire.fetch_api import IDS, FetchResult, FetchSession, Wanted
from ureplicator_worker.wire.topic_keys import TopicKey

Requested = dict[TopicKey, FetchSide]


class BrokerFetches:
    """`partitions`: what the next request fetches, changed or not."""

    def __init__(self, version: int, *, client_id: str = CLIENT_ID) -> None:
        self.partitions: Requested = {}
        self._session = FetchSession(version, client_id=client_id)
        self._changes: dict[TopicKey, Wanted | None] = {}
        self._unconfirmed: dict[FetchSide, None] = {}

    @property
    def version(self) -> int:
        return self._session.version

    @property
    def known(self) -> Mapping[TopicKey, Wanted]:
        """Everything that the last request fetched."""
        return self._session.known

    def fetch(self, fetch: FetchSide, wanted: Wanted) -> None:
        """Fetch a partition from now on, or from another place."""
        key = self._key(fetch)
        self.partitions[key] = fetch
        self._changes[key] = wanted
        self._unconfirmed[fetch] = None

    def leave_out(self, fetch: FetchSide) -> None:
        """Fetch a partition no more. It may not be one of these."""
        key = self._key(fetch)
        if self.partitions.pop(key, None) is not None:
            self._changes[key] = None
            self._unconfirmed.pop(fetch, None)

    def request(self, *, correlation_id: int, max_wait_ms: int, max_bytes: int) -> bytes:
        """The next request, framed; it counts as sent."""
        changes, self._changes = self._changes, {}
        return self._session.request(
            changes, correlation_id=correlation_id, max_wait_ms=max_wait_ms, max_bytes=max_bytes
        )

    def on_response(self, response: FetchResult) -> None:
        """Follow the session. A session leaves out what has neither data nor an error, so a response
        confirms all that it does not name."""
        self._session.on_response(response)
        if response.error:
            self._unconfirmed.update(dict.fromkeys(self.partitions.values()))
            return
        for fetch in self._unconfirmed:
            fetch.fetching = True
            fetch.error = ""
        self._unconfirmed.clear()

    def _key(self, fetch: FetchSide) -> TopicKey:
        return fetch.keys.key(ids=self.version >= IDS)
