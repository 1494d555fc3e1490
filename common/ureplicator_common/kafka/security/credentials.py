"""Logins by the settings of a cluster, with the secrets as they are at this moment."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from ureplicator_common.kafka.security.mechanisms import (
    Exchange,
    PlainExchange,
    ScramExchange,
    TokenExchange,
)
from ureplicator_common.kafka.security.scram import ScramClient
from ureplicator_common.kafka.security.settings import (
    OAUTHBEARER,
    PLAIN,
    PasswordLogin,
    TokenLogin,
)
from ureplicator_common.kafka.security.tokens import ClientCredentials, TokenSource

NONCE_BYTES = 24


class Credentials(Protocol):
    """`exchange` may block; `peek` does not, and returns None while the secret is being got; `prepare` begins
    to get it. They raise ClusterUnavailable."""

    @property
    def mechanism(self) -> str: ...

    @property
    def user(self) -> str:
        """The user's name, for error texts."""
        ...

    def exchange(self) -> Exchange: ...

    def peek(self) -> Exchange | None: ...

    def prepare(self) -> None: ...


class PasswordCredentials:
    def __init__(self, settings: PasswordLogin) -> None:
        self._settings = settings
        self.mechanism = settings.mechanism
        self.user = settings.username

    def exchange(self) -> Exchange:
        password = self._settings.password.read()
        if self.mechanism == PLAIN:
            return PlainExchange(self.user, password)
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return ScramExchange(ScramClient(self.mechanism, self.user, password, nonce=nonce))

    def peek(self) -> Exchange | None:
        return self.exchange()

    def prepare(self) -> None:
        """A password is there at once."""


class TokenCredentials:
    mechanism = OAUTHBEARER

    def __init__(self, settings: TokenLogin, tokens: TokenSource) -> None:
        self.user = settings.client_id
        self._extensions = settings.extensions
        self._tokens = tokens
        self.prepare: Callable[[], None] = tokens.prepare

    def exchange(self) -> Exchange:
        return TokenExchange(self._tokens.token(), self._extensions)

    def peek(self) -> Exchange | None:
        token = self._tokens.peek()
        return None if token is None else TokenExchange(token, self._extensions)


def credentials_of(settings: PasswordLogin | TokenLogin) -> Credentials:
    if isinstance(settings, PasswordLogin):
        return PasswordCredentials(settings)
    return TokenCredentials(settings, TokenSource(ClientCredentials(settings)))
