"""One token for the pages of a process: `Authorization: Bearer <token>`, but for the pages of probes.

The file is read again when it changes. One that becomes unreadable or wrong leaves the former token in force,
since a token that is being replaced must not stop the metrics.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.file_signatures import Signature, signature

log = logging.getLogger(__name__)

OPEN = frozenset({"/health", "/ready"})
MIN_LENGTH = 20
"""Characters of a token: a random one of 20 hexadecimal digits has 80 bits."""
_SCHEME = "bearer "


class PageLogin:
    """The login of pages, for all threads. Raises ConfigurationError if the file cannot be used at
    first."""

    def __init__(self, token_file: str, *, open: Collection[str] = OPEN) -> None:
        self._file = token_file
        self._open = open
        self._lock = threading.Lock()
        self._signature: Signature = ()
        self._digest = b""
        self._refresh()
        if not self._digest:
            raise ConfigurationError(_fault(token_file))

    def guard(self, pages: WSGIApplication) -> WSGIApplication:
        """The pages, with 401 for who does not present the token."""

        def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "").rstrip("/")
            if path in self._open or self._is_good(environ.get("HTTP_AUTHORIZATION", "")):
                return pages(environ, start_response)
            headers = [("Content-Type", "application/json"), ("WWW-Authenticate", "Bearer")]
            start_response("401 Unauthorized", headers)
            return [b'{"title": "this page needs the token of pages.token_file"}\n']

        return guarded

    def _is_good(self, header: str) -> bool:
        with self._lock:
            self._refresh()
            wanted = self._digest
        if not header.lower().startswith(_SCHEME):
            return False
        return hmac.compare_digest(_digest(header[len(_SCHEME) :].strip()), wanted)

    def _refresh(self) -> None:
        now = signature((self._file,))
        if now == self._signature:
            return
        token = _read(self._file)
        if token:
            self._digest = _digest(token)
        elif self._digest:
            log.error("%s; the one read before stays in force", _fault(self._file))
        self._signature = now


def _fault(file: str) -> str:
    return f"pages.token_file: {file}: expected one token of at least {MIN_LENGTH} characters"


def _read(file: str) -> str:
    """The token; "" if there is none that can be used."""
    try:
        token = Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return token if len(token) >= MIN_LENGTH and token.isprintable() and " " not in token else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
