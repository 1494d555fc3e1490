"""The requests of a login (KIP-152), and when a connection has to repeat it (KIP-368). Pure.

SaslHandshake names the mechanism, SaslAuthenticate carries its messages. They have one fixed version each,
which brokers from 2.2 on accept. A broker says how long the login lasts; later it accepts nothing but the
next login on this connection, and closes it for anything else. So the login is repeated in good time: nothing
else may be sent from its first request until its last response.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ureplicator_common.kafka.errors import error_name
from ureplicator_common.kafka.security.mechanisms import Exchange, SaslError

HANDSHAKE, HANDSHAKE_VERSION = 17, 1
AUTHENTICATE, AUTHENTICATE_VERSION = 36, 1
RENEW_AT = 0.8
"""Part of the lifetime after which the login is repeated."""
PREPARE_AT = 0.5
"""Part of the lifetime after which the next token is got, in another thread."""

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")


class LoginRun:
    """One login: `request` is sent and its response given to `on_response`, until that returns False."""

    def __init__(self, mechanism: str, exchange: Exchange, *, client_id: str) -> None:
        self._mechanism = mechanism
        self._exchange = exchange
        self._client_id = client_id.encode()
        self._message: bytes | None = None
        self.lifetime_s = math.inf

    def request(self, correlation_id: int) -> bytes:
        """The next request, framed."""
        if self._message is None:
            name = self._mechanism.encode()
            body = _INT16.pack(len(name)) + name
            return self._framed(HANDSHAKE, HANDSHAKE_VERSION, correlation_id, body)
        body = _SIZE.pack(len(self._message)) + self._message
        return self._framed(AUTHENTICATE, AUTHENTICATE_VERSION, correlation_id, body)

    def on_response(self, body: bytes) -> bool:
        """`body`: without the correlation id. True: there is a next request. Raises SaslError."""
        try:
            if self._message is None:
                self._message = self._handshake(body)
                return True
            reply = self._exchange.reply(self._authenticated(body))
        except struct.error:
            raise SaslError("a response to the login is malformed") from None
        if reply is None:
            return False
        self._message = reply
        return True

    def _handshake(self, body: bytes) -> bytes:
        (code,) = _INT16.unpack_from(body)
        if code:
            offered = ", ".join(_strings(body, _INT16.size)) or "none"
            raise SaslError(
                f"mechanism {self._mechanism}: {error_name(code)}; the broker offers {offered}"
            )
        return self._exchange.first()

    def _authenticated(self, body: bytes) -> bytes:
        """The server's answer; the last one has the lifetime."""
        (code,) = _INT16.unpack_from(body)
        (length,) = _INT16.unpack_from(body, 2)
        place = 4 + max(0, length)
        if code:
            text = body[4:place].decode(errors="replace")
            raise SaslError(f"{error_name(code)}: {text}" if text else error_name(code))
        (size,) = _SIZE.unpack_from(body, place)
        answer = body[place + 4 : place + 4 + max(0, size)]
        (lifetime_ms,) = _INT64.unpack_from(body, place + 4 + max(0, size))
        self.lifetime_s = lifetime_ms / 1_000 if lifetime_ms > 0 else math.inf
        return answer

    def _framed(self, key: int, version: int, correlation_id: int, body: bytes) -> bytes:
        header = _HEADER.pack(key, version, correlation_id, len(self._client_id)) + self._client_id
        return _SIZE.pack(len(header) + len(body)) + header + body


class Login:
    """The login of one connection, as long as it is open.

    `new_run` never blocks: None means that the secret is still being got; `prepare` begins to get it.
    """

    def __init__(
        self,
        *,
        new_run: Callable[[], LoginRun | None],
        prepare: Callable[[], None],
        failed: Callable[[str], str],
    ) -> None:
        """`failed`: the reason of a failure -> the line that says which cluster it concerns."""
        self._new_run = new_run
        self._prepare = prepare
        self.failed = failed
        self._prepare_s = self._renew_s = math.inf

    def completed(self, run: LoginRun, now_s: float) -> None:
        self._prepare_s = now_s + PREPARE_AT * run.lifetime_s
        self._renew_s = now_s + RENEW_AT * run.lifetime_s

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._renew_s

    def renewal(self, now_s: float) -> LoginRun | None:
        """The login to repeat now, if it is due."""
        if now_s >= self._prepare_s:
            self._prepare_s = math.inf
            self._prepare()
        return self._new_run() if self.is_due(now_s) else None


def _strings(body: bytes, place: int) -> list[str]:
    (count,) = _SIZE.unpack_from(body, place)
    place += _SIZE.size
    found = []
    for _ in range(min(max(0, count), 100)):
        (length,) = _INT16.unpack_from(body, place)
        found.append(body[place + 2 : place + 2 + length].decode(errors="replace"))
        place += 2 + length
    return found
