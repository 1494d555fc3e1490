"""Bearer tokens by client credentials (RFC 6749, 4.4) over HTTPS. No redirect is followed, no proxy used.

A token is kept until half of its life is over. The next one is then got when a connection is opened, or in
a thread for those that must not block.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from ureplicator_common.kafka import ClusterUnavailable, LoginRefused
from ureplicator_common.kafka.security.settings import TlsSettings, TokenLogin
from ureplicator_common.kafka.security.tls import TlsContexts, tls_reason

TIMEOUT_S = 5.0
KEPT_PART = 0.5
UNSAID_LIFE_S = 60.0
"""Life of a token for which the response names none."""
MAX_LIFE_S = 1e9
"""Thirty years. A response with a longer life is refused: the number is no lifetime in seconds."""
MAX_RESPONSE_BYTES = 1 << 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    life_s: float


class TokenSource:
    """Source of tokens, for all threads. `token` may block, `peek` and `prepare` do not."""

    def __init__(
        self,
        fetch: Callable[[], Token],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._now_s = now_s
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_s = 0.0
        self._preparing = threading.Lock()

    def token(self) -> str:
        """Raises ClusterUnavailable, LoginRefused."""
        with self._lock:
            kept = self.kept()
            if kept is None:
                token = self._fetch()
                self._renew_s = self._now_s() + KEPT_PART * token.life_s
                self._token = token
                kept = token.text
            return kept

    def kept(self) -> str | None:
        """The last one, while it is to be used."""
        token = self._token
        return token.text if token is not None and self._now_s() < self._renew_s else None

    def peek(self) -> str | None:
        """`kept`; without one, the next is prepared."""
        kept = self.kept()
        if kept is None:
            self.prepare()
        return kept

    def prepare(self) -> None:
        """Get the next one in a thread, if it is time; an error is logged, and met again by `token`."""
        if self.kept() is None and self._preparing.acquire(blocking=False):
            threading.Thread(target=self._prepare, name="bearer-token", daemon=True).start()

    def _prepare(self) -> None:
        try:
            self.token()
        except ClusterUnavailable as error:
            logger.warning("no new token: %s", error)
        finally:
            self._preparing.release()


class ClientCredentials:
    """Gets a token: the `fetch` of a TokenSource."""

    def __init__(self, settings: TokenLogin) -> None:
        self._settings = settings
        self._tls = TlsContexts(TlsSettings(ca=settings.ca))

    def __call__(self) -> Token:
        """Raises ClusterUnavailable, LoginRefused."""
        host = urlsplit(self._settings.url).netloc
        try:
            status, body = self._post()
        except ssl.SSLError as error:
            raise LoginRefused(f"token endpoint {host}: {tls_reason(error)}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ClusterUnavailable(f"token endpoint {host}: {reason}") from None
        return token_of(status, body, host)

    def _post(self) -> tuple[int, bytes]:
        url = urlsplit(self._settings.url)
        assert url.hostname is not None
        connection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=TIMEOUT_S, context=self._tls.current()
        )
        try:
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", path, self._form(), self._headers())
            response = connection.getresponse()
            return response.status, response.read(MAX_RESPONSE_BYTES)
        finally:
            connection.close()

    def _form(self) -> str:
        scope = {"scope": self._settings.scope} if self._settings.scope else {}
        return urlencode({"grant_type": "client_credentials", **scope})

    def _headers(self) -> dict[str, str]:
        """The credentials are not encoded as in a form (RFC 6749, 2.3.1): other clients of Kafka do not."""
        pair = f"{self._settings.client_id}:{self._settings.client_secret.read()}"
        encoded = base64.b64encode(pair.encode()).decode()
        return {
            "Authorization": f"Basic {encoded}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }


def token_of(status: int, body: bytes, host: str) -> Token:
    """The token of a response. Raises LoginRefused for a refusal, ClusterUnavailable."""
    where = f"token endpoint {host}"
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    fields: dict[str, Any] = content if isinstance(content, dict) else {}
    if status != http.client.OK:
        error = str(fields.get("error", ""))[:100]
        kind = LoginRefused if 400 <= status < 500 else ClusterUnavailable
        raise kind(f"{where}: status {status} {error!r}" if error else f"{where}: status {status}")
    text = fields.get("access_token")
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise LoginRefused(f"{where}: its response has no access_token")
    life_s = fields.get("expires_in", UNSAID_LIFE_S)
    if (
        isinstance(life_s, bool)
        or not isinstance(life_s, int | float)
        or not 0 < life_s < MAX_LIFE_S
    ):
        raise LoginRefused(f"{where}: expires_in is wrong in its response")
    return Token(text, float(life_s))
