"""The provider's keys over HTTPS: its discovery document names where they are.

No redirect is followed and no proxy used, as each could put other keys in the place of the provider's.

Source: OpenID Connect Discovery 1.0, 4.3 (the document must name the issuer that was asked for).
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from jwt import PyJWK

from ureplicator_common.config.oidc import OidcSettings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.security.tls import tls_reason
from ureplicator_controller.api.access.oidc.errors import ProviderUnavailable

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0
MAX_RESPONSE_BYTES = 1 << 20
DISCOVERY = "/.well-known/openid-configuration"


class Provider:
    """Asks the provider of the settings. Raises ConfigurationError if `ca_file` cannot be used at first."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        try:
            self._context()
        except OSError as error:
            raise ConfigurationError(
                f"controller.access.oidc.ca_file: {settings.ca_file}: {tls_reason(error)}"
            ) from None

    def keys(self) -> dict[str, PyJWK]:
        """The keys for signatures by their ids. Raises ProviderUnavailable."""
        issuer = self._settings.issuer
        document = self._read(issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != issuer:
            raise ProviderUnavailable(
                f"{issuer}{DISCOVERY} names another issuer: {document.get('issuer')!r}"
            )
        keys = usable_keys(self._read(str(document.get("jwks_uri", ""))))
        if not keys:
            raise ProviderUnavailable(f"{issuer} publishes no key that can be used")
        return keys

    def _read(self, address: str) -> dict[str, Any]:
        """The JSON object at an address."""
        try:
            status, body = self._get(address)
            content = json.loads(body)
        except OSError as error:
            raise ProviderUnavailable(f"{address}: {tls_reason(error)}") from None
        except (http.client.HTTPException, ValueError, RecursionError) as error:
            reason = f"{type(error).__name__} {error}".strip()[:200]
            raise ProviderUnavailable(f"{address}: {reason}") from None
        if status != http.client.OK or not isinstance(content, dict):
            raise ProviderUnavailable(f"{address}: status {status}, not an object of JSON")
        return content

    def _get(self, address: str) -> tuple[int, bytes]:
        url = urlsplit(address)
        if url.scheme != "https" or url.hostname is None:
            raise ValueError("not an address of HTTPS")
        connection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=TIMEOUT_S, context=self._context()
        )
        try:
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            return response.status, response.read(MAX_RESPONSE_BYTES)
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        """Made for each use, so that a file that was renewed counts."""
        context = ssl.create_default_context(cafile=self._settings.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def usable_keys(document: Mapping[str, Any]) -> dict[str, PyJWK]:
    """The keys for signatures of a JWK Set (RFC 7517, 5) by their ids. Others are left out, one by one: a
    provider may publish keys of kinds that are not known here. The set of PyJWT gives up at some of them."""
    published = document.get("keys")
    entries = published if isinstance(published, list) else []
    keys = (_key(entry) for entry in entries if isinstance(entry, dict))
    return {key.key_id: key for key in keys if key is not None and key.key_id}


def _key(entry: dict[str, Any]) -> PyJWK | None:
    if not isinstance(entry.get("kid"), str) or entry.get("use") not in ("sig", None):
        return None
    try:
        return PyJWK(entry)
    except (
        Exception
    ) as error:  # PyJWT raises whatever comes of members that are missing or of other types
        log.info("key %r of the provider is left out: %r", entry["kid"], error)
        return None
