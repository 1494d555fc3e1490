"""TLS of the connections to ZooKeeper: contexts, and texts of what is wrong.

The certificate of each server must come from an authority of `zookeeper.tls.ca_file` and hold the name by
which `zookeeper.hosts` names the server. Neither can be turned off.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from ureplicator_common.config.clusters import ZookeeperTlsSettings
from ureplicator_common.coordination.buffered_sockets import TlsSocket
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.file_signatures import signature
from ureplicator_common.kafka.security.tls import tls_reason

log = logging.getLogger(__name__)

_TLS_PORT = "is it the server's TLS port (secureClientPort)?"
_HINTS = {
    9: "compare the clocks",
    10: "renew it on the server",
    18: "see zookeeper.tls.ca_file",
    19: "see zookeeper.tls.ca_file",
    20: "see zookeeper.tls.ca_file",
    21: "see zookeeper.tls.ca_file",
    62: "zookeeper.hosts must have a name of the certificate",
    64: "zookeeper.hosts must have an address of the certificate",
}
"""Hints by OpenSSL's code of verification."""
_CLIENT_REFUSED = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""Parts of the alerts by which servers refuse a client."""


class TlsContexts:
    """The context of these files, made again when one has changed. For one thread."""

    def __init__(self, settings: ZookeeperTlsSettings) -> None:
        """Raises ConfigurationError."""
        self._settings = settings
        self._loaded = signature(settings.files)
        self._context = new_context(settings)

    def current(self) -> ssl.SSLContext:
        """Certificate and key are two files, so for a moment they may not fit each other: the former context
        is used until all files can be loaded."""
        now = signature(self._settings.files)
        if now != self._loaded:
            self._loaded = now
            try:
                self._context = new_context(self._settings)
            except ConfigurationError as error:
                log.warning("the former certificates are used on: %s", error)
        return self._context


def check_tls(settings: ZookeeperTlsSettings) -> None:
    """Raises ConfigurationError for files that cannot be used."""
    if settings.enabled:
        new_context(settings)


def new_context(settings: ZookeeperTlsSettings) -> ssl.SSLContext:
    """Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.sslsocket_class = TlsSocket
    try:
        context.load_verify_locations(cafile=settings.ca_file)
    except OSError as error:
        raise _unusable("ca_file", settings.ca_file, tls_reason(error)) from None
    if settings.certificate_file:
        _present(context, settings)
    return context


def _present(context: ssl.SSLContext, settings: ZookeeperTlsSettings) -> None:
    password = _password(settings.key_password_file)
    try:
        context.load_cert_chain(
            settings.certificate_file, settings.key_file, password=lambda: password
        )
    except (OSError, ValueError) as error:
        files = f"{settings.certificate_file}, {settings.key_file}"
        raise _unusable("certificate_file, key_file", files, tls_reason(error)) from None


def _password(file: str) -> str:
    """The password in the file; "" without a file, since OpenSSL would ask at the terminal."""
    if not file:
        return ""
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise _unusable("key_password_file", file, reason) from None


def _unusable(name: str, file: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"zookeeper.tls.{name}: {file}: {reason}")


def explained(error: OSError, *, server: str) -> str:
    """One line for an error of a handshake or of TLS later, with a hint; `server`: host:port."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _HINTS.get(error.verify_code, "see zookeeper.tls.ca_file")
        reason = tls_reason(error).rstrip(".")
        return f"{server}: TLS: the certificate of the server is refused: {reason}: {hint}"
    if isinstance(error, TimeoutError):
        return f"{server}: TLS: no response to the handshake in time: {_TLS_PORT}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return f"{server}: TLS: the server ended the handshake: {_TLS_PORT}"
    reason = tls_reason(error)
    code = getattr(error, "reason", None) or ""
    if "ALERT" in code and any(part in code for part in _CLIENT_REFUSED):
        hint = "see zookeeper.tls.certificate_file"
        return f"{server}: TLS: the server refuses this client's certificate, or wants one: {reason}: {hint}"
    hint = f": {_TLS_PORT}" if code in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") else ""
    return f"{server}: TLS: {reason}{hint}"
