"""TLS contexts of a cluster, made again when one of their files has changed.

Certificate and key are two files, so for a moment they may not fit each other: the former context is used
until both can be loaded.
"""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from ureplicator_common.file_signatures import Signature, signature
from ureplicator_common.kafka import ClusterUnavailable, UntrustedConnection
from ureplicator_common.kafka.security.secret import Secret
from ureplicator_common.kafka.security.settings import TlsSettings

logger = logging.getLogger(__name__)


class TlsContexts:
    """TLS contexts of a cluster, for all threads."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._loaded: Signature = ()

    def current(self) -> ssl.SSLContext:
        """Raises UntrustedConnection, ClusterUnavailable while there has been none."""
        with self._lock:
            now = signature(self._settings.files)
            if self._context is None or now != self._loaded:
                self._load(now)
            assert self._context is not None
            return self._context

    def _load(self, now: Signature) -> None:
        try:
            self._context = new_context(self._settings)
            self._loaded = now
        except ClusterUnavailable as error:
            if self._context is None:
                raise
            logger.warning("the former certificates are used on: %s", error)


def new_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises UntrustedConnection for files that are missing or wrong, ClusterUnavailable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify_host
    _trust(context, settings.ca)
    if settings.certificate:
        _present(context, settings)
    return context


def _trust(context: ssl.SSLContext, ca: str) -> None:
    if not ca:
        context.load_default_certs()
        return
    try:
        if Path(ca).is_dir():
            context.load_verify_locations(capath=ca)
        else:
            context.load_verify_locations(cafile=ca)
    except OSError as error:
        raise UntrustedConnection(f"ssl.ca.location: {ca}: {tls_reason(error)}") from None


def _present(context: ssl.SSLContext, settings: TlsSettings) -> None:
    password = _password(settings.key_password)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=lambda: password)
    except (OSError, ValueError) as error:
        files = f"{settings.certificate}, {settings.key}"
        raise UntrustedConnection(
            f"ssl.certificate.location, ssl.key.location: {files}: {tls_reason(error)}"
        ) from None


def _password(secret: Secret | None) -> str:
    """The password; "" without one, since OpenSSL would ask at the terminal."""
    return secret.read() if secret else ""


def tls_reason(error: Exception) -> str:
    """One line, without the place in the source of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
