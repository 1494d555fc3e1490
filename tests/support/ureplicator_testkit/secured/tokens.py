"""An HTTPS endpoint that gives tokens to who knows the client's secret (RFC 6749, 4.4).

The tokens are unsigned: brokers accept them in their default configuration, which is for tests.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ureplicator_testkit.secured.certificates import Certificate
from ureplicator_testkit.servers.served import Served

CLIENT, SECRET = "copier", "client:secret/+ %"


def unsigned_token(subject: str, *, life_s: float) -> str:
    now_s = time.time()
    claims = {"sub": subject, "iat": now_s, "exp": now_s + life_s, "scope": []}
    return ".".join(_part(part) for part in ({"alg": "none"}, claims)) + "."


def _part(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


class TokenEndpoint(Served):
    """`secret` may be changed; `life_s` is that of the tokens."""

    def __init__(self, certificate: Certificate, *, life_s: float) -> None:
        self.secret = SECRET
        self.life_s = life_s
        self.given = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint._respond(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing to stderr."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        super().__init__(server)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/token"

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        form = request.rfile.read(int(request.headers["Content-Length"])).decode()
        pair = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        if request.headers["Authorization"] != f"Basic {pair}" or "client_credentials" not in form:
            status, content = 401, dict[str, Any](error="invalid_client")
        else:
            self.given += 1
            token = unsigned_token(CLIENT, life_s=self.life_s)
            status, content = 200, {"access_token": token, "expires_in": int(self.life_s)}
        body = json.dumps(content).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
