"""The worker's pages: `/status` and `/metrics` for people and Prometheus, `/health`, `/ready`.

The standard library's server does for a handful of readers. The port is bound first of all, so that
a taken one is told before anything else is started; until there are pages to `show`, every answer is
503, which is quicker for a probe than none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from ureplicator_common.errors import PermanentError

Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""

READ_S = 10.0


def json_page(status: int, value: Any) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value, indent=1).encode() + b"\n"


class WebServer:
    def __init__(self, *, host: str, port: int) -> None:
        """Raises PermanentError if the address cannot be had."""
        try:
            self._server = ThreadingHTTPServer((host, port), _Handler)
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; set worker.port (0: any)"
            ) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="worker web", daemon=True
        )
        self._thread.start()

    def show(self, pages: dict[str, Page]) -> None:
        self._server.RequestHandlerClass = type("Handler", (_Handler,), {"pages": pages})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    pages: ClassVar[dict[str, Page]] = {}
    timeout = READ_S

    def do_GET(self) -> None:  # the name is the base class's
        page = self.pages.get(self.path.split("?")[0].rstrip("/") or "/status")
        if not self.pages:
            status, kind, body = json_page(503, {"title": "the worker starts"})
        elif page is None:
            known = sorted(self.pages)
            status, kind, body = json_page(404, {"title": "no such page", "pages": known})
        else:
            status, kind, body = page()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a scrape is no event."""
