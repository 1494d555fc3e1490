"""HTTP server of a role's pages: WSGI applications by path, on the standard library's server.

That serves a handful of readers well enough. The port is bound before anything else is started, so that
a port in use is reported at once. Until there are pages to `show`, every response is 503, which a probe
gets sooner than a refused connection's timeout.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from ureplicator_common.errors import PermanentError

READ_TIMEOUT_S = 10.0
POLL_S = 0.2
DEFAULT_PAGE = "/status"
_SETTINGS: Mapping[str, str] = {"worker": "worker.port", "auditor": "audit.port"}
"""Role -> setting of its port."""

View = Callable[[], tuple[HTTPStatus, Mapping[str, Any]]]


def json_page(view: View) -> WSGIApplication:
    """A page that shows the view's value as JSON."""

    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, value = view()
        return _respond(start_response, status, value)

    return page


def role_pages(
    *, status: View, health: View, ready: View, metrics: Collector
) -> Mapping[str, WSGIApplication]:
    """Pages that every role has: `/status` as JSON, `/metrics` for Prometheus, and the two for probes."""
    registry = CollectorRegistry(auto_describe=False)
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


class WebServer:
    def __init__(self, *, host: str, port: int, role: str = "worker") -> None:
        """Raises PermanentError if the address cannot be bound."""
        try:
            self._server = _ThreadingServer((host, port), _Handler)
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; set {_SETTINGS[role]} (0: any)"
            ) from error
        self._server.set_app(json_page(partial(_starting, role)))
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name=f"{role} web", daemon=True
        )
        self._thread.start()

    def show(self, pages: Mapping[str, WSGIApplication]) -> None:
        """Serve these pages by path from now on."""

        def route(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ["PATH_INFO"].rstrip("/") or DEFAULT_PAGE
            if path not in pages:
                problem = {"title": "no such page", "pages": sorted(pages)}
                return _respond(start_response, HTTPStatus.NOT_FOUND, problem)
            return pages[path](environ, start_response)

        self._server.set_app(route)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _starting(role: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"title": f"the {role} is starting"}


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a scrape is not worth a log line."""
