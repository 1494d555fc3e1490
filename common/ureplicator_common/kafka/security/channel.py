"""A fresh socket to a broker -> one that is encrypted and authenticated.

All clients of a cluster in a process share one `Security`: contexts, tokens, and how long a broker that
refused is left alone. That is per broker, grows with each refusal, and ends at once when a file of the
secrets or certificates changes: a wrong password must not lock an account, and a mended one is used at once.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from ureplicator_common.backoff import Backoff
from ureplicator_common.file_signatures import signature
from ureplicator_common.kafka import ClusterUnavailable, LoginRefused, UntrustedConnection
from ureplicator_common.kafka.cluster_view import Broker
from ureplicator_common.kafka.security.credentials import Credentials, credentials_of
from ureplicator_common.kafka.security.login import Login, LoginRun
from ureplicator_common.kafka.security.mechanisms import SaslError
from ureplicator_common.kafka.security.settings import SecuritySettings, parse
from ureplicator_common.kafka.security.tls import TlsContexts, tls_reason
from ureplicator_common.kafka.wire.sockets import receive_exactly

REFUSED_DELAYS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_RESPONSE_BYTES = 1 << 20
SECURE_TIMEOUT_S = 3.0
"""Least time for the handshake and each response of the login: a broker computes for both."""

_INT32 = struct.Struct(">i")


class Opened(NamedTuple):
    """`login`: None without SASL."""

    connection: socket.socket
    login: Login | None


class Refusals:
    """Brokers that refused: the reason, and until when they are left alone. For all threads."""

    def __init__(self, *, files: tuple[str, ...], now_s: Callable[[], float]) -> None:
        self._files = files
        self._now_s = now_s
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], tuple[Backoff, float, ClusterUnavailable]] = {}
        self._signature = signature(files)

    def check(self, broker: Broker) -> None:
        """Raises the former refusal while its delay lasts."""
        with self._lock:
            if (latest := signature(self._files)) != self._signature:
                self._signature = latest
                self._known.clear()
            _, until_s, error = self._known.get((broker.host, broker.port), (None, 0.0, None))
        if error is not None and self._now_s() < until_s:
            raise type(error)(str(error))

    def add(self, broker: Broker, error: ClusterUnavailable) -> None:
        key = broker.host, broker.port
        with self._lock:
            former, *_ = self._known.get(key, (Backoff(REFUSED_DELAYS_S),))
            backoff = former.failed()
            self._known[key] = backoff, self._now_s() + backoff.delay_s, error

    def clear(self, broker: Broker) -> None:
        with self._lock:
            self._known.pop((broker.host, broker.port), None)


class Security:
    """Opens connections to a cluster; the default is plaintext. For all threads."""

    def __init__(
        self,
        settings: SecuritySettings | None = None,
        *,
        cluster: str = "",
        credentials: Credentials | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cluster`: its name, for error texts."""
        settings = settings or SecuritySettings()
        self._cluster = cluster
        self._now_s = now_s
        self._contexts = TlsContexts(settings.tls) if settings.tls else None
        if credentials is None and settings.login is not None:
            credentials = credentials_of(settings.login)
        self._credentials = credentials
        self._refusals = Refusals(files=settings.secret_files, now_s=now_s)

    @property
    def is_plaintext(self) -> bool:
        return self._contexts is None and self._credentials is None

    def where(self, broker: Broker) -> str:
        """Cluster and broker, for error texts."""
        return f"cluster {self._cluster} at {broker}" if self._cluster else str(broker)

    def timeout_s(self, timeout_s: float) -> float:
        """The time for a step of opening a connection that takes `timeout_s` at most without TLS and
        SASL."""
        return timeout_s if self.is_plaintext else max(timeout_s, SECURE_TIMEOUT_S)

    def check(self, broker: Broker) -> None:
        """Raises what `open` would, while a former refusal is too young for another attempt."""
        self._refusals.check(broker)

    def open(
        self, connection: socket.socket, broker: Broker, *, timeout_s: float, client_id: str
    ) -> Opened:
        """Raises ClusterUnavailable, UntrustedConnection, LoginRefused; OSError for the network."""
        if self.is_plaintext:
            return Opened(connection, None)
        connection.settimeout(self.timeout_s(timeout_s))
        secured = connection
        try:
            secured = self._encrypted(connection, broker)
            login = self._authenticated(secured, broker, client_id)
        except (UntrustedConnection, LoginRefused) as error:
            secured.close()
            self._refusals.add(broker, error)
            raise
        except (OSError, ClusterUnavailable):
            secured.close()
            raise
        self._refusals.clear(broker)
        secured.settimeout(timeout_s)
        return Opened(secured, login)

    def _encrypted(self, connection: socket.socket, broker: Broker) -> socket.socket:
        if self._contexts is None:
            return connection
        where = self.where(broker)
        try:
            return self._contexts.current().wrap_socket(connection, server_hostname=broker.host)
        except UntrustedConnection as error:
            raise UntrustedConnection(f"{where}: {error}") from None
        except ssl.SSLError as error:
            raise UntrustedConnection(f"{where}: TLS: {tls_reason(error)}") from None

    def _authenticated(
        self, connection: socket.socket, broker: Broker, client_id: str
    ) -> Login | None:
        credentials = self._credentials
        if credentials is None:
            return None
        where = self.where(broker)
        login = self._login(credentials, where, client_id)
        try:
            run = LoginRun(credentials.mechanism, credentials.exchange(), client_id=client_id)
            _perform(run, connection)
        except SaslError as error:
            raise LoginRefused(login.failed(str(error))) from None
        except ssl.SSLError as error:
            raise UntrustedConnection(f"{where}: TLS: {tls_reason(error)}") from None
        except ClusterUnavailable as error:
            raise type(error)(login.failed(str(error))) from None
        login.completed(run, self._now_s())
        return login

    def _login(self, credentials: Credentials, where: str, client_id: str) -> Login:
        def new_run() -> LoginRun | None:
            try:
                exchange = credentials.peek()
            except ClusterUnavailable:
                return None  # tried again; a login that runs out meanwhile is reported by the next connection
            if exchange is None:
                return None
            return LoginRun(credentials.mechanism, exchange, client_id=client_id)

        user = f"{credentials.mechanism} login of {credentials.user!r}"
        return Login(
            new_run=new_run,
            prepare=credentials.prepare,
            failed=lambda reason: f"{where}: {user}: {reason}",
        )


def _perform(run: LoginRun, connection: socket.socket) -> None:
    """All requests of a login on a blocking socket. Raises SaslError, OSError."""
    correlation_id, more = 0, True
    while more:
        connection.sendall(run.request(correlation_id))
        (size,) = _INT32.unpack(receive_exactly(connection, _INT32.size))
        if not _INT32.size <= size <= MAX_RESPONSE_BYTES:
            raise ConnectionAbortedError(f"a response of {size} bytes to the login")
        response = bytes(receive_exactly(connection, size))
        if _INT32.unpack_from(response) != (correlation_id,):
            raise ConnectionAbortedError("a response of another request to the login")
        more = run.on_response(response[_INT32.size :])
        correlation_id += 1


def security_of(properties: Mapping[str, str], *, cluster: str = "") -> Security:
    """The one of this process for a cluster with these properties. Raises ConfigurationError."""
    return _shared(parse(properties), cluster)


@lru_cache(maxsize=64)
def _shared(settings: SecuritySettings, cluster: str) -> Security:
    return Security(settings, cluster=cluster)
