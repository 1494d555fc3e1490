"""A reverse proxy that serves another server below a path of its own, and nothing beside it.

    client --- /ureplicator/topics ---> [ proxy ] --- /topics ---> server

It tells the server nothing of that path, and passes on what comes when it comes, as events need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ureplicator_testkit.servers.served import Served

PREFIX = "/ureplicator"
_CHUNK_BYTES = 64 * 1024
_OWN = ("connection", "transfer-encoding", "keep-alive", "date", "server")
"""Headers of one connection, which are not passed on."""


@contextmanager
def below_prefix(url: str) -> Iterator[str]:
    """The address, with a slash at its end, at which `PREFIX` of the proxy is."""
    handler = _handler(urlsplit(url).netloc)
    with Served(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as served:
        yield f"http://127.0.0.1:{served.port}{PREFIX}/"


def _handler(netloc: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def _pass_on(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with closing(HTTPConnection(netloc, timeout=30)) as upstream:
                path = self.path.removeprefix(PREFIX)
                upstream.request(self.command, path, body or None, dict(self.headers))
                self._respond(upstream.getresponse())

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on

        def _respond(self, response: HTTPResponse) -> None:
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.end_headers()
            try:
                while chunk := response.read1(_CHUNK_BYTES):
                    self.wfile.write(chunk)
            except OSError:
                self.close_connection = True  # the client, or the server, has gone

        def log_message(self, *_: object) -> None:
            """Log nothing: the pages ask often."""

    return Handler
