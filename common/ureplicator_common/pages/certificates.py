"""TLS of a server: the context of new connections, made again when one of its files has changed.

Files that cannot be used leave the former context in force, since a certificate and its key are two files
that do not change at once, and a mistake in a renewal must not close the server. Connections that are open
keep the context that they began with.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass

from ureplicator_common.config.access import TlsSettings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.file_signatures import Signature, signature
from ureplicator_common.kafka.security.tls import tls_reason

log = logging.getLogger(__name__)

REST = "controller.tls"
RETRY_S = 10.0
"""Time between two tries with the same files: a certificate may become valid."""


@dataclass(slots=True)
class _Loaded:
    context: ssl.SSLContext
    files: Signature
    fault: str = ""
    tried: Signature = ()
    retry_at_s: float = 0.0


class ServerContexts:
    """TLS contexts of a server, for one thread. `key`: of the settings. Raises ConfigurationError if
    the files cannot be used."""

    def __init__(self, settings: TlsSettings, *, key: str = REST) -> None:
        self._settings = settings
        self._key = key
        files = self._signature()
        self._loaded = _Loaded(new_context(settings, key=key), files)

    def current(self, *, now_s: float) -> ssl.SSLContext:
        """The context for a new connection."""
        loaded, files = self._loaded, self._signature()
        if files != loaded.files and (files != loaded.tried or now_s >= loaded.retry_at_s):
            self._reload(files, now_s)
        return self._loaded.context

    def _reload(self, files: Signature, now_s: float) -> None:
        try:
            self._loaded = _Loaded(new_context(self._settings, key=self._key), files)
            log.info("the certificate that is in %s is used now", self._settings.certificate_file)
        except ConfigurationError as error:
            if str(error) != self._loaded.fault:
                log.warning("the former certificate is used on: %s", error)
            self._loaded.fault = str(error)
            self._loaded.tried, self._loaded.retry_at_s = files, now_s + RETRY_S

    def _signature(self) -> Signature:
        return signature(path for path in self._settings.files if path)


def new_context(settings: TlsSettings, *, key: str = REST) -> ssl.SSLContext:
    """Raises ConfigurationError for files that are missing, wrong, expired or do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    own = f"{settings.certificate_file}, {settings.key_file}"
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: "")
        _check_validity(context, settings.certificate_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{key}: {own}: {tls_reason(error)}") from None
    if settings.client_ca_file:
        _ask_clients(context, settings.client_ca_file, key)
    return context


def _ask_clients(context: ssl.SSLContext, path: str, key: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except OSError as error:
        raise ConfigurationError(f"{key}.client_ca_file: {path}: {tls_reason(error)}") from None
    context.verify_mode = ssl.CERT_REQUIRED


def _check_validity(context: ssl.SSLContext, certificate: str) -> None:
    """Shake hands in memory with a client that trusts this certificate alone. Raises ssl.SSLError.

    It judges dates and purpose as clients will; their authorities and the host are not known here.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(cafile=certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
