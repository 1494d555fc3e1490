"""A login, request by request, and when it is repeated."""

from __future__ import annotations

import math
import struct

import pytest

from ureplicator_common.kafka.security.login import Login, LoginRun
from ureplicator_common.kafka.security.mechanisms import PlainExchange, SaslError, TokenExchange


def handshake(code: int = 0, *offered: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in offered)
    return struct.pack(">hi", code, len(offered)) + names


def authenticated(code: int = 0, text: str = "", answer: bytes = b"", life_ms: int = 0) -> bytes:
    size = struct.pack(">h", len(text) if text else -1)
    return b"".join(
        (struct.pack(">h", code), size, text.encode(), struct.pack(">i", len(answer)), answer)
    ) + struct.pack(">q", life_ms)


def run() -> LoginRun:
    return LoginRun("PLAIN", PlainExchange("me", "hunter2"), client_id="us")


def test_the_requests_of_a_login() -> None:
    mine = run()
    assert mine.request(7) == b"\0\0\0\x13\0\x11\0\x01\0\0\0\x07\0\x02us\0\x05PLAIN"
    assert mine.on_response(handshake(0, "PLAIN"))
    request = mine.request(8)
    assert request.startswith(struct.pack(">ihhi", len(request) - 4, 36, 1, 8))
    assert request.endswith(b"\0\0\0\x0b\0me\0hunter2")
    assert not mine.on_response(authenticated(life_ms=4_000))
    assert mine.lifetime_s == 4.0


def test_a_login_without_end() -> None:
    mine = run()
    mine.on_response(handshake())
    mine.on_response(authenticated())
    assert mine.lifetime_s == math.inf


@pytest.mark.parametrize(
    ("responses", "text"),
    [
        ([handshake(33, "GSSAPI")], "PLAIN: UNSUPPORTED_SASL_MECHANISM; the broker offers GSSAPI"),
        ([handshake(), authenticated(58, "wrong")], "SASL_AUTHENTICATION_FAILED: wrong"),
        ([handshake(), authenticated()[:9]], "malformed"),
        ([b"\0"], "malformed"),
    ],
)
def test_a_refused_login(responses: list[bytes], text: str) -> None:
    mine = run()
    for response in responses[:-1]:
        mine.on_response(response)
    with pytest.raises(SaslError, match=text) as refused:
        mine.on_response(responses[-1])
    assert "hunter2" not in str(refused.value)


def test_a_refused_token_is_acknowledged_before_the_error() -> None:
    mine = LoginRun("OAUTHBEARER", TokenExchange("T", [("a", "1")]), client_id="us")
    mine.on_response(handshake())
    assert mine.request(1).endswith(b"n,,\x01auth=Bearer T\x01a=1\x01\x01")
    assert mine.on_response(authenticated(answer=b'{"status":"invalid_token"}'))
    assert mine.request(2).endswith(b"\0\0\0\x01\x01")
    with pytest.raises(SaslError, match="SASL_AUTHENTICATION_FAILED"):
        mine.on_response(authenticated(58))


def test_when_a_login_is_repeated() -> None:
    prepared: list[None] = []
    ready: list[LoginRun] = []
    login = Login(
        new_run=lambda: ready.pop() if ready else None,
        prepare=lambda: prepared.append(None),
        failed=lambda reason: reason,
    )
    assert login.renewal(1e9) is None
    done = run()
    done.lifetime_s = 100.0
    login.completed(done, 1_000.0)
    assert login.renewal(1_049.0) is None
    assert not prepared
    assert login.renewal(1_051.0) is None
    assert login.renewal(1_079.0) is None
    assert len(prepared) == 1
    assert not login.is_due(1_079.0)
    assert login.is_due(1_081.0)
    assert login.renewal(1_081.0) is None
    ready.append(run())
    assert login.renewal(1_082.0) is not None
