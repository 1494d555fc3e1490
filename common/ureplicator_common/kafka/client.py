"""Control requests to a cluster: one request, one response, on blocking sockets (`connection`).

The data requests (Fetch, Produce) are written by `ureplicator_worker.wire`. They use `connect` of
this module too, so TLS and authentication are in one place (`security`): both happen on the blocking
socket, before it is handed over. kafka-python's message classes do the encoding; nothing of its network
layer is used (its connection reads 4 KiB at a time and allows no more than five requests in flight).

A `ClusterClient` belongs to one thread. Every network failure is ClusterUnavailable: the socket is closed,
so a late response can never be taken for the response to another request.

No broker can stop a client by its silence. A connection is tried for `CONNECT_TIMEOUT_S`. A request that
any broker serves goes to them in turn (`broker_order`), and each gets a part of the time that is left
(`ANY_PART`; the last one all of it), so several are tried. A request that one broker must serve gets half
of what is left: the rest is for finding out who serves it now. These times are silence, that is, the time
since the last byte: a long response on a slow line is read to its end, within the deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.broker_order import Address, BrokerOrder, broker_order
from ureplicator_common.kafka.cluster_view import Broker as Broker
from ureplicator_common.kafka.cluster_view import ClusterView as ClusterView
from ureplicator_common.kafka.cluster_view import Leader as Leader
from ureplicator_common.kafka.cluster_view import ViewDecoder
from ureplicator_common.kafka.connection import CLIENT_ID as CLIENT_ID
from ureplicator_common.kafka.connection import CONNECT_TIMEOUT_S as CONNECT_TIMEOUT_S
from ureplicator_common.kafka.connection import BlockingConnection as BlockingConnection
from ureplicator_common.kafka.connection import Channels, OpenChannel
from ureplicator_common.kafka.connection import connect as connect
from ureplicator_common.kafka.errors import ErrorCode, named_cluster, refusal
from ureplicator_common.kafka.security.channel import Opened as Opened
from ureplicator_common.kafka.security.channel import Security as Security
from ureplicator_common.kafka.security.channel import security_of
from ureplicator_common.kafka.wire.metadata import MetadataRequest

REQUEST_TIMEOUT_S = 10.0
ANY_PART = 0.25
ONE_PART = 0.5
MIN_SILENCE_S = 0.3
FIND_COORDINATOR_VERSION = 3
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
_KEYS = {GROUP_COORDINATOR: "group", TRANSACTION_COORDINATOR: "transactional id"}
READ_UNCOMMITTED = 0
"""The end of a log is its high watermark: what all replicas in sync hold."""
READ_COMMITTED = 1
"""The end is the last stable offset: records behind it, in open transactions, are not to be copied yet."""
EARLIEST = -2
LATEST = -1


def open_client(
    cluster: str,
    properties: Mapping[str, str],
    *,
    timeout_s: float = REQUEST_TIMEOUT_S,
    order: BrokerOrder | None = None,
    client_id: str = CLIENT_ID,
) -> ClusterClient:
    """The client of a cluster by its name and properties, with their TLS and SASL.

    Nothing is connected before the first request. Raises ConfigurationError.
    """
    return ClusterClient(
        properties["bootstrap.servers"],
        security=security_of(properties, cluster=cluster),
        name=cluster,
        timeout_s=timeout_s,
        order=order,
        client_id=client_id,
    )


class NoCoordinator(ClusterUnavailable):
    """The brokers respond that there is none now: it is being elected."""


class ClusterClient:
    """Control requests to one cluster: finds brokers and coordinators, keeps a channel to each.

    `order`: shared by the clients of the cluster in this process; `timeout_s`: for a request with all its
    attempts.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        name: str = "",
        security: Security | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        order: BrokerOrder | None = None,
        open_channel: OpenChannel | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
        client_id: str = CLIENT_ID,
    ) -> None:
        """`name`: of the cluster, in reasons; `client_id`: name in the brokers' logs, metrics and quotas."""
        self.name = named_cluster(name, bootstrap)
        self._order = order or broker_order(bootstrap)
        self.client_id = client_id
        self._security = security or Security()
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self.pause = pause
        self._views = ViewDecoder(self.name)
        self._channels = Channels(
            open_channel or partial(BlockingConnection.open, client_id=client_id), self._security
        )
        self._coordinators: dict[tuple[int, str], Broker] = {}
        self._deadline_s = math.inf

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Limit the time of all requests inside together; after it they raise ClusterUnavailable."""
        outer_s = self._deadline_s
        self._deadline_s = self.deadline_s(timeout_s)
        try:
            yield
        finally:
            self._deadline_s = outer_s

    def now_s(self) -> float:
        return self._clock.monotonic_s()

    def deadline_s(self, timeout_s: float) -> float:
        """Deadline for retries: after `timeout_s`, but not beyond `within`."""
        return min(self._deadline_s, self.now_s() + timeout_s)

    def has_failed(self, broker: Broker) -> bool:
        """True if the broker has failed lately; it is better tried after the others."""
        return self._order.has_failed((broker.host, broker.port), self.now_s())

    @property
    def security(self) -> Security:
        return self._security

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        """Request to one broker. Raises ClusterUnavailable."""
        (reply,) = self.call_all(broker, [request], response)
        return reply

    def call_all(
        self, broker: Broker, requests: Sequence[Any], response: Any, *, channels: int = 1
    ) -> list[Any]:
        """Requests to one broker, sent at once; over several `channels`, as a broker serves the requests of
        each one by one. Raises ClusterUnavailable."""
        with self.within(self._timeout_s):
            return self._attempt(broker, requests, response, part=ONE_PART, channels=channels)

    def call_any(self, request: Callable[[], Any], response: Any) -> Any:
        """The response to one request, as of `call_any_all`."""
        (reply,) = self.call_any_all(lambda: [request()], response)
        return reply

    def call_any_all(self, requests: Callable[[], Sequence[Any]], response: Any) -> list[Any]:
        """Try brokers in turn until one responds; the requests are created again for each."""
        failures: list[str] = []
        kinds: set[type[ClusterUnavailable]] = set()
        with self.within(self._timeout_s):
            in_turn = self._order.in_turn(self.now_s())
            for address in in_turn:
                broker = Broker(-1, *address)
                part = 1.0 if address == in_turn[-1] else ANY_PART
                try:
                    replies = self._attempt(broker, requests(), response, part=part)
                except ClusterUnavailable as error:
                    kinds.add(type(error))
                    if str(error) not in failures:
                        failures.append(str(error))
                    continue
                if self._order.stale and response is not self._views:
                    self._read_brokers(broker)
                return replies
        kind = kinds.pop() if len(kinds) == 1 else ClusterUnavailable
        raise kind("; ".join(failures) or "no bootstrap servers")

    def _attempt(
        self,
        broker: Broker,
        requests: Sequence[Any],
        response: Any,
        *,
        part: float,
        channels: int = 1,
    ) -> list[Any]:
        """Raises ClusterUnavailable."""
        address = (broker.host, broker.port)
        silence_s = self._silence_s(part)
        try:
            replies = self._channels.exchange(
                broker,
                requests,
                response,
                count=channels,
                silence_s=silence_s,
                deadline_s=self._deadline_s,
            )
        except ClusterUnavailable:
            self._failed(address)
            raise
        self._order.responded(address)
        return replies

    def _silence_s(self, part: float) -> float:
        left_s = self._deadline_s - self.now_s()
        if left_s <= 0:
            raise ClusterUnavailable("time limit exceeded")
        return min(left_s, max(MIN_SILENCE_S, left_s * part))

    def _failed(self, address: Address) -> None:
        self._order.failed(address, self.now_s())
        self._channels.close(address)
        self._coordinators = {
            key: known
            for key, known in self._coordinators.items()
            if (known.host, known.port) != address
        }

    def _read_brokers(self, broker: Broker) -> None:
        """Read the brokers after a failure, from one that responds. Without a response the next request
        tries it again."""
        with suppress(ClusterUnavailable):
            (view,) = self._attempt(
                broker, [MetadataRequest(())], ViewDecoder(self.name), part=ANY_PART
            )
            self._discovered(view)

    def _discovered(self, view: ClusterView) -> None:
        self._order.discovered((broker.host, broker.port) for broker in view.brokers.values())

    def view(self, topics: Sequence[str]) -> ClusterView:
        """Leaders, brokers and topic ids, for these topics only; the same object as before if nothing has
        changed. Raises ClusterUnavailable."""
        view: ClusterView = self.call_any(lambda: MetadataRequest(topics), self._views)
        self._discovered(view)
        return view

    def coordinator(self, key: str, kind: int) -> Broker:
        """Coordinator of a group or a transactional id, cached while it responds.

        `forget_coordinator` is for one that responds that it is not the coordinator any more. Raises
        NoCoordinator, and ClusterUnavailable if no broker responds.
        """
        led, reason = self.coordinators([key], kind)
        if not led:
            raise NoCoordinator(f"{reason} for {key}", delay_s=0.2)
        (broker,) = led
        return broker

    def coordinators(self, keys: Sequence[str], kind: int) -> tuple[dict[Broker, list[str]], str]:
        """Coordinators of many keys at once: keys by broker, and the reason why others have none.

        Raises ClusterUnavailable if no broker responds.
        """
        reason = ""
        unknown = [key for key in keys if (kind, key) not in self._coordinators]
        if unknown:
            replies = self.call_any_all(
                lambda: [_coordinator_request(key, kind) for key in unknown],
                FindCoordinatorResponse,
            )
            for key, reply in zip(unknown, replies, strict=True):
                if reply.error_code:
                    right = f"DESCRIBE on {_KEYS[kind]} {key}"
                    reason = f"no coordinator: {refusal(reply.error_code, right, self.name)}"
                else:
                    self._coordinators[kind, key] = Broker(reply.node_id, reply.host, reply.port)
        led: dict[Broker, list[str]] = {}
        for key in keys:
            broker = self._coordinators.get((kind, key))
            if broker is not None:
                led.setdefault(broker, []).append(key)
        return led, reason

    def forget_coordinator(self, key: str, kind: int) -> None:
        self._coordinators.pop((kind, key), None)

    def reset(self) -> None:
        """Close every connection: responses to earlier requests can no longer arrive."""
        self._channels.close_all()
        self._coordinators.clear()

    close = reset


def _coordinator_request(key: str, kind: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(version=FIND_COORDINATOR_VERSION, key=key, key_type=kind)


def controller_rows(
    client: ClusterClient, request: Callable[[], Any], response: Any, field: str
) -> Sequence[Any]:
    """Rows (`field`) of the controller's response; of any broker's, where brokers pass requests on.

    If no broker is the controller, they have the error NOT_CONTROLLER. Raises ClusterUnavailable.
    """
    rows: Sequence[Any] = ()
    for broker in client.view(()).brokers.values():
        rows = getattr(client.call(broker, request(), response), field)
        if all(row.error_code != ErrorCode.NOT_CONTROLLER for row in rows):
            return rows
    if not rows:
        raise ClusterUnavailable("no broker is known")
    return rows
