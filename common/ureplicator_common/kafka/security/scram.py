"""The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding. Pure.

    client first   n,,n=user,r=nonce
    server first   r=nonce + server's part, s=salt, i=iterations
    client final   c=biws, r=both, p=proof
    server final   v=signature, or e=error

The signature shows that the server knows the password, too, so it is always verified. Fewer than
`MIN_ITERATIONS` are refused: a false server could ask for one, and try passwords against the proof. More than
`MAX_ITERATIONS` would occupy this process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from functools import lru_cache

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 2_000_000
_GS2 = "n,,"


class ScramError(Exception):
    """The server's message is refused, or the server refuses; the text holds no secret."""


class ScramClient:
    """One login: `first`, then `final` of the server's first message, then `verify` its final one."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(username)},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return (_GS2 + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Raises ScramError."""
        fields = _fields(server_first)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the nonce of the server does not begin with ours")
        salted = self._salted(fields)
        without_proof = f"c={base64.b64encode(_GS2.encode()).decode()},r={nonce}"
        signed = ",".join((self._bare, server_first.decode(), without_proof)).encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = _xor(client_key, self._hmac(stored_key, signed))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raises ScramError."""
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(f"the server refuses: {fields['e']}")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise ScramError("the signature of the server is wrong: it does not know the password")

    def _salted(self, fields: dict[str, str]) -> bytes:
        count = fields.get("i", "")
        iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ScramError(
                f"{iterations} iterations, expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        return _salted_password(
            self._hash, self._password, _decoded(fields.get("s", "")), iterations
        )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


@lru_cache(maxsize=16)
def _salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password, kept since each connection of a cluster needs the same: it takes
    milliseconds."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _fields(message: bytes) -> dict[str, str]:
    try:
        pairs = [part.split("=", 1) for part in message.decode().split(",")]
        return {name: value for name, value in pairs}
    except (UnicodeDecodeError, ValueError):
        raise ScramError("a message of the server is malformed") from None


def _decoded(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a message of the server is malformed") from None
    if not decoded:
        raise ScramError("a message of the server is incomplete")
    return decoded
