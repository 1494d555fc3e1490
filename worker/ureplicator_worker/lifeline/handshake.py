"""Mutual proof at the begin of a lifeline: each end shows that it has the token of the run, without
sending it.

    copier                                        driver
      | -- Hello(copier, host, pid, nonce) ------> |  the run has no token: closed
      | <- Challenge(nonce, proof) --------------- |  proof: HMAC-SHA256(token, driver, Hello, driver's nonce)
      |    wrong: closed                           |
      | -- ChallengeResponse(proof) -------------> |  proof: HMAC-SHA256(token, copier, Hello, driver's nonce)
      |                                            |  wrong: closed; right: admitted, the token is used up

Rules, and why:

* The token is never on the wire. It reaches the copier in the closure of its task. So a process that
  listens where a driver was cannot have it from the copier's Hello, nor can it give the copier orders.
* Each proof names its role: the driver's is no response to its own challenge.
* Each proof covers the nonces of both ends, so that a recorded handshake is of no use, and all of the
  Hello, so that host and pid are those of the process that has the token.
* A token admits once. The first right response uses it up; a second connection of the run that was
  challenged before is then refused.
* Proofs are compared in constant time.

The handshake authenticates the two ends, not each line that follows: who can change packets on the way
between driver and executor needs another remedy, a network of its own or IPsec.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading

from ureplicator_worker.lifeline.codec import encode
from ureplicator_worker.lifeline.messages import Challenge, ChallengeResponse, CopierId, Hello


class HandshakeFailed(ValueError):
    """The other end does not have the token of the run."""


def new_nonce() -> str:
    return secrets.token_urlsafe(32)


def respond(token: str, hello: Hello, challenge: Challenge) -> ChallengeResponse:
    """The copier's response to a driver that has the token. Raises HandshakeFailed."""
    _check(_proof("driver", token, hello, challenge.nonce), challenge.proof, "the driver")
    return ChallengeResponse(_proof("copier", token, hello, challenge.nonce))


class Admissions:
    """The driver's tokens, one for each run, each good for one connection. From any thread."""

    def __init__(self) -> None:
        self._tokens: dict[CopierId, str] = {}
        self._lock = threading.Lock()

    def issue(self, copier: CopierId) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[copier] = token
        return token

    def withdraw(self, copier: CopierId) -> None:
        with self._lock:
            self._tokens.pop(copier, None)

    def challenge(self, hello: Hello) -> Challenge:
        """Raises HandshakeFailed for a run that has no token, or no longer."""
        with self._lock:
            token = self._token(hello)
        nonce = new_nonce()
        return Challenge(nonce, _proof("driver", token, hello, nonce))

    def redeem(self, hello: Hello, challenge: Challenge, response: ChallengeResponse) -> None:
        """Use the token up. Raises HandshakeFailed for a wrong proof, or a token that is gone."""
        with self._lock:
            expected = _proof("copier", self._token(hello), hello, challenge.nonce)
            _check(expected, response.proof, f"copier {hello.copier}")
            del self._tokens[hello.copier]

    def _token(self, hello: Hello) -> str:
        token = self._tokens.get(hello.copier)
        if token is None:
            raise HandshakeFailed(f"copier {hello.copier} has no token")
        return token


def _proof(role: str, token: str, hello: Hello, nonce: str) -> str:
    text = b"\n".join((role.encode(), nonce.encode(), encode(hello)))
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


def _check(expected: str, received: str, peer: str) -> None:
    if not hmac.compare_digest(expected.encode(), received.encode()):
        raise HandshakeFailed(f"{peer} does not have the token of this run")
