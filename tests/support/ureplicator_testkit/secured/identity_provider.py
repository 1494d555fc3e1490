"""An identity provider over HTTPS: discovery, the public keys, and tokens that it signs (OpenID Connect)."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ureplicator_testkit.secured.certificates import Certificate
from ureplicator_testkit.servers.served import Served

AUDIENCE = "ureplicator"
LIFE_S = 3600.0


class SigningKey:
    def __init__(self, id: str) -> None:
        self.id = id
        self.private = rsa.generate_private_key(public_exponent=65_537, key_size=2048)

    @property
    def public(self) -> dict[str, Any]:
        shown: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(
            self.private.public_key(), as_dict=True
        )
        return shown | {"kid": self.id, "use": "sig", "alg": "RS256"}

    @property
    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )


class IdentityProvider(Served):
    """`away`: it answers 503; `hanging_s`: it waits before each response; `claimed_issuer`: what its document
    says; `published`: the keys that it shows."""

    def __init__(self, certificate: Certificate) -> None:
        self.key = SigningKey("first")
        self.published = [self.key]
        self.away = False
        self.hanging_s = 0.0
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._respond(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing to stderr."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        super().__init__(server)
        self.issuer = f"https://127.0.0.1:{self.port}/realm"
        self.claimed_issuer = self.issuer

    def rotate(self, id: str) -> None:
        """Sign with a new key from now on, and show no other."""
        self.key = SigningKey(id)
        self.published = [self.key]

    def claims(self, subject: str, *roles: str, life_s: float = LIFE_S) -> dict[str, Any]:
        now_s = int(time.time())
        return {
            "iss": self.issuer,
            "aud": [AUDIENCE, "others"],
            "sub": subject,
            "iat": now_s,
            "exp": now_s + int(life_s),
            "realm_access": {"roles": list(roles)},
        }

    def token(self, subject: str, *roles: str, life_s: float = LIFE_S) -> str:
        return self.signed(self.claims(subject, *roles, life_s=life_s))

    def signed(
        self,
        claims: Mapping[str, Any],
        *,
        key: SigningKey | None = None,
        headers: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        signing = key or self.key
        return jwt.encode(
            dict(claims), signing.private, "RS256", headers={"kid": signing.id, **headers}
        )

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        time.sleep(self.hanging_s)
        content = {
            "/realm/.well-known/openid-configuration": {
                "issuer": self.claimed_issuer,
                "jwks_uri": f"{self.issuer}/keys",
            },
            "/realm/keys": {"keys": [key.public for key in self.published]},
        }.get(request.path)
        body = json.dumps(content).encode()
        request.send_response(503 if self.away else 200 if content else 404)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
