"""One login by each SASL mechanism: what is sent, and what the server's answers must be. Pure.

PLAIN (RFC 4616), SCRAM (RFC 5802), OAUTHBEARER (RFC 7628).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ureplicator_common.kafka.security.scram import ScramClient, ScramError


class SaslError(Exception):
    """The login has failed; the text holds no secret."""


class Exchange(Protocol):
    """`first` is sent, then what `reply` makes of each answer, until it returns None."""

    def first(self) -> bytes: ...

    def reply(self, answer: bytes) -> bytes | None:
        """The next message; None: the login is complete. Raises SaslError."""
        ...


class PlainExchange:
    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def reply(self, answer: bytes) -> bytes | None:
        return None


class ScramExchange:
    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._final_sent = False

    def first(self) -> bytes:
        return self._client.first()

    def reply(self, answer: bytes) -> bytes | None:
        try:
            if self._final_sent:
                self._client.verify(answer)
                return None
            self._final_sent = True
            return self._client.final(answer)
        except ScramError as error:
            raise SaslError(str(error)) from None


class TokenExchange:
    """A server that refuses the token answers with JSON, and with an error after one more message."""

    def __init__(self, token: str, extensions: Iterable[tuple[str, str]]) -> None:
        more = "".join(f"{name}={value}\x01" for name, value in extensions)
        self._message = f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()

    def first(self) -> bytes:
        return self._message

    def reply(self, answer: bytes) -> bytes | None:
        return b"\x01" if answer.strip(b"\x01") else None
