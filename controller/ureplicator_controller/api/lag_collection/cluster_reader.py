"""Reader of one Kafka cluster on a thread of its own.

A reader uses sockets of its own, one request at a time. A cluster with a request outstanding is not
queried again, so a cluster that does not respond costs one thread and no queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, Protocol, TypeVar

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable

MAX_IDLE_S = 300.0
"""Brokers close a connection that was idle for ten minutes: the reader reconnects before that."""


class Closeable(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closeable)
T = TypeVar("T")


class ClusterReader(Generic[R]):
    """Connects at the first query, and again after a long pause."""

    def __init__(self, connect: Callable[[], R], *, name: str, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._outstanding: Future[Any] | None = None
        self._reader: R | None = None
        self._used_at_s = 0.0

    def submit(self, query: Callable[[R], T]) -> Future[T]:
        """Raises ClusterUnavailable while an earlier query is outstanding."""
        if self._outstanding is not None and not self._outstanding.done():
            raise ClusterUnavailable("an earlier request is still outstanding")
        result = self._thread.submit(lambda: query(self._connected()))
        self._outstanding = result
        return result

    def close(self) -> None:
        """Disconnect after the outstanding query, if any, without waiting for it."""
        self._thread.submit(self._disconnect)
        self._thread.shutdown(wait=False)

    def _connected(self) -> R:
        now_s = self._clock.monotonic_s()
        if now_s - self._used_at_s > MAX_IDLE_S:
            self._disconnect()
        self._used_at_s = now_s
        if self._reader is None:
            self._reader = self._connect()
        return self._reader

    def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def query_all(
    readers: Mapping[str, ClusterReader[R]],
    queries: Mapping[str, Callable[[R], T]],
    *,
    timeout_s: float,
) -> dict[str, T | OperatingError]:
    """Query all clusters at the same time; each one's result, or its error."""
    pending: dict[str, Future[T]] = {}
    results: dict[str, T | OperatingError] = {}
    for name, query in queries.items():
        try:
            pending[name] = readers[name].submit(query)
        except OperatingError as error:
            results[name] = error
    for name, future in pending.items():
        try:
            results[name] = future.result(timeout=timeout_s)
        except OperatingError as error:
            results[name] = error
        except FutureTimeout:
            results[name] = ClusterUnavailable(f"no response within {timeout_s:g} s")
    return results
