"""HTTP server of a process' pages: WSGI applications by path, on the standard library's server.

That serves a handful of readers well enough. The port is bound before anything else is started, so that
a port in use is reported at once. Until there are pages to `show`, every response is 503, which a probe
gets sooner than a refused connection's timeout.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import make_wsgi_app
from prometheus_client.registry import Collector

from ureplicator_common.config.access import is_loopback
from ureplicator_common.config.pages import PagesSettings
from ureplicator_common.errors import PermanentError
from ureplicator_common.pages.certificates import ServerContexts
from ureplicator_common.pages.login import PageLogin
from ureplicator_common.pages.metrics import FleetRegistry

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 10.0
POLL_S = 0.2
_SETTINGS: Mapping[str, str] = {
    "worker": "worker.port",
    "auditor": "audit.port",
    "controller": "controller.metrics_port",
    "fleets": "--serve",
}
"""Role -> setting of its port."""

View = Callable[[], tuple[HTTPStatus, Mapping[str, Any]]]


def json_page(view: View) -> WSGIApplication:
    """A page that shows the view's value as JSON."""

    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, value = view()
        return _respond(start_response, status, value)

    return page


def role_pages(
    *, fleet: str, status: View, health: View, ready: View, metrics: Collector
) -> Mapping[str, WSGIApplication]:
    """Pages that every role has: `/status` as JSON, `/metrics` for Prometheus, and the two for probes."""
    registry = FleetRegistry(fleet)
    registry.register(metrics)
    shown: WSGIApplication = make_wsgi_app(registry)
    return {
        "/status": json_page(status),
        "/metrics": shown,
        "/health": json_page(health),
        "/ready": json_page(ready),
    }


def ok_if(good: bool) -> HTTPStatus:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _respond(
    start_response: StartResponse, status: HTTPStatus, value: Mapping[str, Any]
) -> Iterable[bytes]:
    headers = [("Content-Type", "application/json")]
    start_response(f"{status.value} {status.phrase}", headers)
    return [json.dumps(value, indent=1).encode() + b"\n"]


_NO_LOGIN = PagesSettings()


class WebServer:
    """`pages`: login and TLS."""

    def __init__(
        self, *, host: str, port: int, role: str = "worker", pages: PagesSettings = _NO_LOGIN
    ) -> None:
        """Raises PermanentError if the address cannot be bound, ConfigurationError for unusable files."""
        login = PageLogin(pages.token_file) if pages.token_file else None
        self._guard = login.guard if login else _unguarded
        contexts = ServerContexts(pages.tls, key="pages.tls") if pages.tls.enabled else None
        if not pages.protected and not is_loopback(host):
            log.warning("everyone who reaches %s may read the pages of this %s (pages)", host, role)
        try:
            self._server = _ThreadingServer((host, port), contexts)
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; set {_SETTINGS[role]} (0: any)"
            ) from error
        self._server.set_app(self._guard(json_page(partial(_starting, role))))
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name=f"{role} web", daemon=True
        )
        self._thread.start()

    def show(self, pages: Mapping[str, WSGIApplication]) -> None:
        """Serve these pages by path from now on; `/` is the first."""

        def route(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ["PATH_INFO"].rstrip("/") or next(iter(pages))
            if path not in pages:
                problem = {"title": "no such page", "pages": sorted(pages)}
                return _respond(start_response, HTTPStatus.NOT_FOUND, problem)
            return pages[path](environ, start_response)

        self._server.set_app(self._guard(route))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _unguarded(pages: WSGIApplication) -> WSGIApplication:
    return pages


def _starting(role: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"title": f"the {role} is starting"}


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    """A handshake is part of reading the request, in the thread of its connection."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], contexts: ServerContexts | None) -> None:
        super().__init__(address, _Handler)
        self._contexts = contexts

    def get_request(self) -> tuple[socket.socket, Any]:
        client, address = super().get_request()
        if self._contexts is None:
            return client, address
        context = self._contexts.current(now_s=time.monotonic())
        secured = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return secured, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.info("a request for a page from %s failed: %s", client_address[0], sys.exc_info()[1])


class _Handler(WSGIRequestHandler):
    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a scrape is not worth a log line."""
